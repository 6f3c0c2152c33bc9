"""Connect a program in a job with this side's terminal or pipes, until it ends or somebody leaves it."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpu_dev.sessions.descriptors import read_ready, write_all
from gpu_dev.sessions.program_wire import Channel
from gpu_dev.sessions.remote_program import RemoteProgram
from gpu_dev.sessions.terminals.escapes import HELP, Escape, Escapes
from gpu_dev.sessions.terminals.raw_terminal import RawTerminal

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Ends:
    """The descriptors of this side; without `stdin` the program's input ends at once."""

    stdin: int | None = 0
    stdout: int = 1
    stderr: int = 2


class LeftError(Exception):
    """Somebody left the program by the escape `~.`."""


class SignalledError(Exception):
    """A signal ended this side."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


async def converse(program: RemoteProgram, ends: Ends, terminal: RawTerminal | None = None) -> int:
    """Pass everything on until the program has ended, and return its exit code.

    `terminal` is raw meanwhile, and the program has its sizes; a program that is left goes on there, and without a
    terminal it is hung up. Raises BrokenOffError, LeftError, SignalledError, and BrokenPipeError where nobody reads
    the output.
    """
    stopped = asyncio.get_running_loop().create_future()
    tasks = [
        asyncio.create_task(_pass_output(program, ends)),
        asyncio.create_task(_pass_input(program, ends, terminal)),
    ]
    if terminal is not None:
        tasks.append(asyncio.create_task(_follow_size(program, terminal)))
    try:
        with _signals(stopped):
            if terminal is None:
                await _first_failure(tasks, stopped)
            else:
                with terminal:
                    await _first_failure(tasks, stopped)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await program.close(keep=terminal is not None and program.exit_code is None)
    assert program.exit_code is not None  # noqa: S101 - the output has ended
    return program.exit_code


async def _first_failure(tasks: list[asyncio.Task[None]], stopped: asyncio.Future[None]) -> None:
    """Wait for the end of the first task. Raises what any of them raises, and what stops them."""
    waiting: set[asyncio.Future[None]] = {stopped, *tasks}
    while not tasks[0].done():
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()


async def _pass_output(program: RemoteProgram, ends: Ends) -> None:
    async for channel, data in program.output():
        await write_all(ends.stderr if channel is Channel.STDERR else ends.stdout, data)


async def _pass_input(program: RemoteProgram, ends: Ends, terminal: RawTerminal | None) -> None:
    escapes = Escapes() if terminal is not None else None
    while ends.stdin is not None and (typed := await read_ready(ends.stdin)):
        if escapes is None or terminal is None:
            await program.write(typed)
            continue
        for part in escapes.feed(typed):
            match part:
                case bytes():
                    await program.write(part)
                case Escape.LEAVE:
                    raise LeftError
                case Escape.SUSPEND:
                    terminal.suspend()
                    await program.resize(terminal.size())
                case Escape.HELP:
                    await write_all(ends.stderr, HELP.encode())
    await program.close_input()


async def _follow_size(program: RemoteProgram, terminal: RawTerminal) -> None:
    """Tell the program the terminal's size whenever it changes, and after this process was stopped."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def resumed() -> None:
        terminal.make_raw()
        changed.set()

    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    loop.add_signal_handler(signal.SIGCONT, resumed)
    told = terminal.size()
    try:
        while True:
            await changed.wait()
            changed.clear()
            size = terminal.size()
            if size != told:
                await program.resize(size)
                told = size
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGCONT)


@contextmanager
def _signals(stopped: asyncio.Future[None]) -> Iterator[None]:
    """Within, signals that end this process stop the conversation, so that the terminal is put back."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_exception(SignalledError(number))

    ignored = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_IGN]  # as nohup wants it
    heard = [number for number in _ENDING if number not in ignored]
    for number in heard:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
        if stopped.done() and not stopped.cancelled():
            stopped.exception()  # seen, also where something else was first
