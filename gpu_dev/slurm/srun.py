"""`srun`: run a command on GPUs of its own, in the foreground."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpu_dev.errors import ExitCode
from gpu_dev.server.connection import resolve
from gpu_dev.slurm.reading.options import SRUN
from gpu_dev.slurm.reading.requests import Asked, read_request
from gpu_dev.slurm.reading.words import Remark, read_words
from gpu_dev.slurm.saying import refuse, show_help, warn

_USAGE = "Usage: srun [OPTIONS] COMMAND [WORDS]..."
_NOTHING = "Nothing was submitted. All options and what they are here: srun --help"


def main(words: Sequence[str]) -> int:
    """Run a command; returns its exit code."""
    typed = read_words(words, SRUN)
    if show_help(_USAGE, SRUN, typed.given):
        return ExitCode.OK
    reading = read_request(typed.given, os.environ)
    missing = [] if typed.operands else [Remark(None, "COMMAND", "Name the command, as in srun --gpus=1 --time=30 id.")]
    inside = [Remark(None, "srun", "A job has no steps. Run the command itself.")] if _is_inside_a_job() else []
    refuse("srun", inside or [*typed.refusals, *reading.refusals, *missing], _NOTHING)
    asked = reading.asked
    if not asked.quiet:
        warn("srun", reading.warnings)
    return _run(replace(asked, name=asked.name or Path(typed.operands[0]).name), typed.operands)


def _is_inside_a_job() -> bool:
    return "GPU_DEV_JOB_ID" in os.environ


def _run(asked: Asked, command: Sequence[str]) -> int:
    # Loaded here: a command that is refused needs no client.
    from gpu_dev.commands.jobs.run import run_in_foreground, terminable
    from gpu_dev.session import client_of
    from gpu_dev.sessions.run_input import has_input, reading_input
    from gpu_dev.slurm.submitting import make_submit, rehearse

    with client_of(resolve(None, None, os.environ)) as client, terminable():
        request = make_submit(client, asked, command)
        if asked.test_only:
            rehearse(client, request)
            return ExitCode.OK
        if asked.pty:
            # Loaded here: other jobs need no WebSockets.
            from gpu_dev.sessions.terminals.terminal_runs import run_in_terminal

            return run_in_terminal(client, request)
        feeds = has_input()
        return run_in_foreground(client, reading_input(request) if feeds else request, None, feeds=feeds)
