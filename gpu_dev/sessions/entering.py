"""Entering a job: a shell, a program or an open terminal, until it ends; the exit code is the program's."""

import sys
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from gpu_dev.client import GpuDevClient
from gpu_dev.sessions.conversation import Ends, converse
from gpu_dev.sessions.descriptors import run_polling
from gpu_dev.sessions.endings import exit_code_after
from gpu_dev.sessions.program_wire import USUAL_SIZE
from gpu_dev.sessions.terminals.terminal_session import use_terminal


def enter_shell(client: GpuDevClient, job_id: str, rank: int = 0) -> int:
    """Be in a shell of a running job, and say what becomes of the job when it ends."""
    if sys.stdin.isatty():
        conversation, come_back = use_terminal(client.sessions, job_id, rank=rank), _attach_command(job_id, rank)
        return _talk(client, job_id, conversation, come_back, is_shell=True)
    return _talk(client, job_id, _pass_pipes(client, job_id, [], rank), f"gpu-dev shell {job_id}", is_shell=True)


def run_program(client: GpuDevClient, job_id: str, words: Sequence[str], rank: int, *, tty: bool) -> int:
    """Run a program in a running job, with a terminal if `tty`."""
    if tty and sys.stdin.isatty():
        conversation = use_terminal(client.sessions, job_id, words, rank=rank)
    else:
        conversation = _pass_pipes(client, job_id, words, rank, tty=tty)
    return _talk(client, job_id, conversation, _attach_command(job_id, rank) if tty else f"gpu-dev show {job_id}")


def join_terminal(client: GpuDevClient, job_id: str, rank: int, name: str | None) -> int:
    """Be in an open terminal of a job: the one of that name, or one's own newest, or the newest."""
    conversation = use_terminal(client.sessions, job_id, rank=rank, attach=True, name=name)
    return _talk(client, job_id, conversation, _attach_command(job_id, rank), is_shell=True)


def _talk(
    client: GpuDevClient,
    job_id: str,
    conversation: Coroutine[Any, Any, int],
    come_back: str,
    *,
    is_shell: bool = False,
) -> int:
    return exit_code_after(client, partial(run_polling, conversation), job_id, come_back, is_shell=is_shell)


def _attach_command(job_id: str, rank: int) -> str:
    return f"gpu-dev attach {job_id}" + (f" --rank {rank}" if rank else "")


async def _pass_pipes(
    client: GpuDevClient, job_id: str, command: Sequence[str], rank: int, *, tty: bool = False
) -> int:
    terminal = USUAL_SIZE if tty else None
    return await converse(await client.sessions.start(job_id, command, terminal=terminal, rank=rank), Ends())
