"""`sbatch`: submit a script with its `#SBATCH` lines."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpu_dev.errors import ExitCode, UsageError
from gpu_dev.server.connection import resolve
from gpu_dev.slurm.reading.options import SBATCH
from gpu_dev.slurm.reading.requests import Asked, Reading, read_request
from gpu_dev.slurm.reading.scripts import (
    CPUS,
    Script,
    faults_of,
    late_directives,
    read_directives,
    read_script,
    wrapped,
)
from gpu_dev.slurm.reading.words import Remark, Words, read_words
from gpu_dev.slurm.saying import refuse, show_help, warn

_USAGE = """\
Usage: sbatch [OPTIONS] SCRIPT [WORDS]...  (without SCRIPT it is read from stdin)
       sbatch [OPTIONS] --wrap=COMMAND"""
_NOTHING = "Nothing was submitted. All options and what they are here: sbatch --help"


def main(words: Sequence[str]) -> int:
    """Submit a script; returns the exit code."""
    typed = read_words(words, SBATCH)
    if show_help(_USAGE, SBATCH, typed.given):
        return ExitCode.OK
    refuse("sbatch", typed.refusals, _NOTHING)
    wrap = next((given.value for given in reversed(typed.given) if given.option.name == "wrap"), None)
    source, arguments = _source(typed, wrap)
    script = wrapped(wrap) if wrap is not None else read_script(_read(source))
    if isinstance(script, Remark):
        refuse("sbatch", [script], _NOTHING)
        return ExitCode.USAGE
    reading = _read_all(script, typed)
    refuse("sbatch", reading.refusals, _NOTHING)
    asked = reading.asked
    if not asked.quiet:
        warn("sbatch", reading.warnings)
    name = "wrap" if wrap is not None else Path(source).name if source != "-" else "sbatch"
    return _submit(replace(asked, name=asked.name or name), script, arguments)


def _source(typed: Words, wrap: str | None) -> tuple[str, list[str]]:
    """The script's path, `-` for stdin, and the words for it."""
    if wrap is None:
        return (typed.operands[0], typed.operands[1:]) if typed.operands else ("-", [])
    if typed.operands:
        refuse("sbatch", [Remark(None, typed.operands[0], "Name either a script or --wrap.")], _NOTHING)
    return "-", []


def _read(source: str) -> str:
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is no script: it is not UTF-8.") from error
    except OSError as error:
        raise UsageError(f"{source} can't be read: {error.strerror}.") from error


def _read_all(script: Script, typed: Words) -> Reading:
    """The request of a script's lines and the command line, whose options go first, with all faults in order."""
    lines = read_directives(script, SBATCH)
    reading = read_request([*lines.given, *typed.given], os.environ)
    found = [*lines.refusals, *reading.refusals, *faults_of(script, cpus=reading.asked.cpus is not None)]
    reading.refusals = sorted(found, key=lambda remark: remark.line or 0)
    reading.warnings += late_directives(script)
    if reading.asked.nodes > 1:
        text = "The script runs on each node, not only on the first; NODE_RANK says on which."
        reading.warnings.append(Remark(None, f"--nodes={reading.asked.nodes}", text))
    return reading


def _submit(asked: Asked, script: Script, arguments: Sequence[str]) -> int:
    # Loaded here: a script that is refused needs no client.
    from gpu_dev.commands.jobs.rehearsals import say_wait
    from gpu_dev.following import exit_code_of, has_ended, wait_until
    from gpu_dev.session import client_of
    from gpu_dev.slurm.submitting import make_submit, rehearse
    from gpu_dev.terminal import put

    variables = {
        "SLURM_JOB_NAME": asked.name or "",
        "SLURM_SUBMIT_DIR": str(Path.cwd()),
        "SLURM_GPUS_ON_NODE": str(asked.gpus),
    }
    if asked.cpus is not None:
        variables[CPUS] = str(asked.cpus)
    with client_of(resolve(None, None, os.environ)) as client:
        request = make_submit(client, asked, script.command(arguments, variables))
        if asked.test_only:
            rehearse(client, request)
            return ExitCode.OK
        job = client.submit(request)
        put(f"{job.id}\n" if asked.parsable else f"Submitted batch job {job.id}\n")
        if asked.wait:
            return exit_code_of(wait_until(client, job, has_ended))
        if not asked.quiet:
            say_wait(client, request, job)
    return ExitCode.OK
