"""Read and write descriptors in an event loop that polls: terminals, pipes and files alike, and without threads.

Descriptors stay blocking, because other processes share them. Nothing waits all the same: only what is ready is read,
and a pipe that has room takes as much as PIPE_BUF at once.
"""

import asyncio
import os
import select
import selectors
import stat
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

READ_BYTES = 64 * 1024
_FILE_PIECE = 256 * 1024


def run_polling(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop that takes descriptors of files, too, as epoll does not."""
    factory: Callable[[], asyncio.AbstractEventLoop] = _polling_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def _polling_loop() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(selectors.PollSelector())


async def read_ready(descriptor: int) -> bytes:
    """What can be read now or next; nothing at the end of input."""
    while True:
        await _ready(descriptor, for_writing=False)
        try:
            return os.read(descriptor, READ_BYTES)
        except BlockingIOError:  # somebody else was quicker
            continue
        except OSError:  # a terminal that was hung up
            return b""


async def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write, and wait while there is no room. Raises BrokenPipeError when nobody reads any more."""
    piece = _FILE_PIECE if stat.S_ISREG(os.fstat(descriptor).st_mode) else select.PIPE_BUF
    left = memoryview(data)
    while left:
        if not _has_room(descriptor):
            await _ready(descriptor, for_writing=True)
        try:
            left = left[os.write(descriptor, left[:piece]) :]
        except BlockingIOError:
            await _ready(descriptor, for_writing=True)


def _has_room(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


async def _ready(descriptor: int, *, for_writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    (loop.add_writer if for_writing else loop.add_reader)(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        (loop.remove_writer if for_writing else loop.remove_reader)(descriptor)
