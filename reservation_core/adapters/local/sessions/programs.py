"""Running programs of local pods, as the control plane sees them: with pipes of their own, or in a kept terminal."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from reservation_core.adapters.local.sessions.wire import (
    END_OF_INPUT,
    EXIT,
    HANG_UP,
    INPUT,
    MOST_FRAME_BYTES,
    OUTPUT,
    REFUSED,
    SIGNAL,
    SIGNALS,
    SIZE,
    STARTED,
    WAIT_STATUS,
    frame,
    read_frame,
    size_content,
)
from reservation_core.ports.sessions.pod_streams import (
    CHUNK_BYTES,
    InputClosedError,
    Outlet,
    Output,
    PodNotReachableError,
    ProgramEnd,
    SignalRefusedError,
    TerminalSize,
)

_LEAVE_S = 5.0
_BROKEN_OFF = "The job ended, and the program with it."


class MinderConnection:
    """The frames to and from a program's minder."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._status = 0  # supervisors of earlier versions send the exit code alone
        self.end: ProgramEnd | None = None

    async def next_output(self) -> bytes:
        """The next output of a terminal; none when the program has ended, and then `end` says how."""
        while (received := await self._next_frame()) is not None:
            kind, content = received
            if kind == OUTPUT:
                return content
            if kind == WAIT_STATUS:
                self._status = int(content)
            if kind == EXIT:
                signal = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else None
                self.end = ProgramEnd(int(content), signal=signal, core_dumped=os.WCOREDUMP(self._status))
                return b""
            if kind == REFUSED:
                self.end = ProgramEnd(None, f"The terminal was not joined: {content.decode('utf-8', 'replace')}.")
                return b""
        self.end = ProgramEnd(None, _BROKEN_OFF)
        return b""

    async def begun(self) -> str | None:
        """Wait until the program is started; returns its terminal's key. Raises PodNotReachableError if it is not."""
        while (received := await self._next_frame()) is not None and received[0] != STARTED:
            if received[0] == REFUSED:
                raise PodNotReachableError(f"The program was not started: {received[1].decode('utf-8', 'replace')}.")
        if received is None:
            raise PodNotReachableError("The job is ending: nobody can enter it any more.")
        return received[1].decode() or None  # supervisors of earlier versions send none

    async def send(self, kind: bytes, content: bytes = b"") -> None:
        """Send a frame, and wait while the minder does not read. Raises InputClosedError."""
        if self._writer.is_closing():
            raise InputClosedError
        try:
            self._writer.write(frame(kind, content))
            await self._writer.drain()
        except OSError as problem:
            raise InputClosedError from problem

    async def send_signal(self, name: str) -> None:
        """Raises SignalRefusedError."""
        if name not in SIGNALS:
            raise SignalRefusedError(f"There is no signal {name!r}. Known are {', '.join(sorted(SIGNALS))}.")
        with suppress(InputClosedError):
            await self.send(SIGNAL, name.encode())

    async def close(self) -> None:
        """Close the connection. A minder that reads nothing is waited for some seconds."""
        self._writer.close()
        try:
            async with asyncio.timeout(_LEAVE_S):
                with suppress(OSError):
                    await self._writer.wait_closed()
        except TimeoutError:
            self._writer.transport.abort()

    async def hang_up(self) -> None:
        """Leave a terminal, which ends unless others are in it, and wait some seconds until its keeper has noticed."""
        if self._writer.is_closing():
            return
        with suppress(OSError):
            self._writer.write(frame(HANG_UP))
        opened: socket.socket = self._writer.get_extra_info("socket")
        with opened.dup() as left:
            # HANG_UP waits behind input that the program does not take; a side that is closed alone is seen at once.
            with suppress(OSError):
                left.shutdown(socket.SHUT_WR)
            self._writer.transport.abort()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    while await asyncio.get_running_loop().sock_recv(left, CHUNK_BYTES):
                        pass

    async def _next_frame(self) -> tuple[bytes, bytes] | None:
        """The next frame; None when the minder has gone."""
        while True:
            try:
                received = read_frame(self._buffer)
                if received is not None:
                    return received
                data = await self._reader.read(CHUNK_BYTES)
            except (OSError, ValueError):
                return None
            if not data:
                return None
            self._buffer += data


class TerminalProgram:
    """A program in a kept terminal, or a further connection to it."""

    def __init__(self, minder: MinderConnection, key: str | None) -> None:
        self._minder = minder
        self.terminal_key = key

    async def output(self) -> AsyncIterator[Output]:
        while data := await self._minder.next_output():
            yield Output(Outlet.STDOUT, data)

    async def write(self, data: bytes) -> None:
        for begin in range(0, len(data), MOST_FRAME_BYTES):
            await self._minder.send(INPUT, data[begin : begin + MOST_FRAME_BYTES])

    async def close_input(self) -> None:
        with suppress(InputClosedError):
            await self._minder.send(END_OF_INPUT)

    async def resize(self, size: TerminalSize) -> None:
        with suppress(InputClosedError):
            await self._minder.send(SIZE, size_content(size.columns, size.rows))

    async def send_signal(self, name: str) -> None:
        await self._minder.send_signal(name)

    async def wait(self) -> ProgramEnd:
        while self._minder.end is None:
            await self._minder.next_output()
        return self._minder.end

    async def close(self, *, keep: bool = False) -> None:
        await (self._minder.close() if keep else self._minder.hang_up())


class PipedProgram:
    """A program whose input and outputs are pipes of this process."""

    terminal_key = None

    def __init__(
        self,
        minder: MinderConnection,
        stdin: asyncio.StreamWriter,
        outputs: dict[Outlet, tuple[asyncio.StreamReader, asyncio.ReadTransport]],
    ) -> None:
        self._minder = minder
        self._stdin = stdin
        self._outputs = outputs

    async def output(self) -> AsyncIterator[Output]:
        reads = {asyncio.ensure_future(self._outputs[outlet][0].read(CHUNK_BYTES)): outlet for outlet in self._outputs}
        try:
            while reads:
                done, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for read in done:
                    outlet = reads.pop(read)
                    if data := read.result():
                        yield Output(outlet, data)
                        reads[asyncio.ensure_future(self._outputs[outlet][0].read(CHUNK_BYTES))] = outlet
        finally:
            for read in reads:
                read.cancel()

    async def write(self, data: bytes) -> None:
        if self._stdin.is_closing():
            raise InputClosedError
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except OSError as problem:
            raise InputClosedError from problem

    async def close_input(self) -> None:
        self._stdin.close()  # once what was written is taken

    async def resize(self, size: TerminalSize) -> None:
        """It has no terminal."""

    async def send_signal(self, name: str) -> None:
        await self._minder.send_signal(name)

    async def wait(self) -> ProgramEnd:
        while self._minder.end is None:
            await self._minder.next_output()
        return self._minder.end

    async def close(self, *, keep: bool = False) -> None:  # noqa: ARG002 - pipes can't be joined again
        try:
            await self._minder.close()  # its minder hangs the program up
        finally:
            for _, transport in self._outputs.values():
                transport.close()
            if not self._stdin.is_closing():  # asyncio's pipes can't be aborted twice
                self._stdin.transport.abort()


async def read_pipe(fd: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Read from a pipe, at most some chunks ahead of who reads."""
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    return reader, transport


async def write_pipe(fd: int) -> asyncio.StreamWriter:
    """Write to a pipe that was made for this; `drain` waits while nobody reads."""
    loop = asyncio.get_running_loop()
    transport: Any
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(fd, "wb", buffering=0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
