"""A program in this side's terminal, joined again when its connection breaks."""

import asyncio
import time
from collections.abc import Sequence

from gpu_dev.calls.session_calls import SessionCalls
from gpu_dev.errors import ApiError, ClientError, UnreachableError
from gpu_dev.sessions.conversation import Ends, converse
from gpu_dev.sessions.remote_program import BrokenOffError, RemoteProgram
from gpu_dev.sessions.terminals.raw_terminal import RawTerminal
from gpu_dev.terminal import say

REJOIN_S = 60.0
_PAUSE_S = 1.0
_SERVER_ERROR = 500
_NO_TERMINAL = "urn:gpu-dev:problem:no_terminal"
_LOST = (
    "The terminal ended with its connection, as this cluster keeps none. Run `tmux` or `screen` in the job to have one"
    " that stays."
)


async def use_terminal(
    calls: SessionCalls,
    job_id: str,
    command: Sequence[str] = (),
    *,
    rank: int = 0,
    attach: bool = False,
    name: str | None = None,
) -> int:
    """Run a command (none: the login shell) in a terminal of the job, or attach to the one of a name or the newest.

    A connection that breaks is tried again for a minute. Raises BrokenOffError after that, and what `converse` raises.
    """
    terminal = RawTerminal(0)
    if attach:
        program = await calls.attach(job_id, terminal.size(), rank=rank, name=name)
    else:
        program = await calls.start(job_id, command, terminal=terminal.size(), rank=rank)
    while True:
        try:
            return await converse(program, Ends(), terminal)
        except BrokenOffError as error:
            if error.is_final:
                raise
            say(f"The connection to {job_id} broke: {error}")
            program = await _join_again(calls, job_id, terminal, rank, program.terminal_key or name)


async def _join_again(
    calls: SessionCalls, job_id: str, terminal: RawTerminal, rank: int, name: str | None
) -> RemoteProgram:
    until = time.monotonic() + REJOIN_S
    is_said = False
    while True:
        try:
            return await calls.attach(job_id, terminal.size(), rank=rank, name=name)
        except ClientError as error:
            if isinstance(error, ApiError) and error.problem.type == _NO_TERMINAL:
                why = _LOST if name is None else "The terminal has ended."
                raise BrokenOffError(why, is_final=True, is_lost=True) from error
            is_passing = isinstance(error, UnreachableError) or (
                isinstance(error, ApiError) and error.problem.status >= _SERVER_ERROR
            )
            if not is_passing or time.monotonic() >= until:
                raise BrokenOffError(error.detail, is_final=True) from error
        if not is_said:
            say("Trying to come back for a minute; Ctrl-C gives up.")
            is_said = True
        await asyncio.sleep(_PAUSE_S)
