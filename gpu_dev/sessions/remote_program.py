"""A program in a job, at the other end of a WebSocket."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from gpu_dev.sessions.program_wire import (
    END_OF_INPUT,
    INPUT,
    Channel,
    Size,
    UnknownEndError,
    exit_code_in,
    resize_message,
)

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_NORMAL, _GOING_AWAY = 1000, 1001
_CLOSE_S = 2.0
_TERMINAL = "Gpu-Dev-Terminal"
_SAID_BY_SERVER = frozenset({1008, 1013})
"""Codes of a close by which the server ends a session for a reason: its text is shown, and nobody comes back."""


class BrokenOffError(Exception):
    """The connection ended before the program. The text says why; `is_final` if there is no coming back.

    `is_lost`: the program's terminal has ended, too, where clusters keep none.
    """

    def __init__(self, why: str, *, is_final: bool = False, is_lost: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final
        self.is_lost = is_lost


class RemoteProgram:
    """Reads and writes wait for each other's back-pressure, and neither for the other."""

    def __init__(self, connection: "ClientConnection") -> None:
        self._connection = connection
        handshake = connection.response
        self.terminal_key = None if handshake is None else handshake.headers.get(_TERMINAL)
        """What its terminal is joined again by; None where none is kept."""
        self.exit_code: int | None = None

    async def output(self) -> AsyncIterator[tuple[Channel, memoryview]]:
        """What it writes to STDOUT and STDERR, until it has ended; `exit_code` is known then. Raises BrokenOffError."""
        while True:
            try:
                message = await self._connection.recv(decode=False)
            except ConnectionClosed as closed:
                raise _broken_off(closed) from closed
            if not message:
                continue
            channel, data = message[0], memoryview(message)[1:]
            if channel in (Channel.STDOUT, Channel.STDERR):
                yield Channel(channel), data
            elif channel == Channel.STATUS:
                try:
                    self.exit_code = exit_code_in(bytes(data))
                except UnknownEndError as error:
                    raise BrokenOffError(str(error)) from error
                return

    async def write(self, data: bytes) -> None:
        """Pass input on, and wait until there is room for more."""
        await self._send(INPUT + data)

    async def close_input(self) -> None:
        await self._send(END_OF_INPUT)

    async def resize(self, size: Size) -> None:
        await self._send(resize_message(size))

    async def close(self, *, keep: bool = False) -> None:
        """Leave the program, which is hung up unless it has ended; `keep` leaves it in its terminal, to be joined."""
        try:
            await asyncio.wait_for(self._connection.close(_GOING_AWAY if keep else _NORMAL), _CLOSE_S)
        except TimeoutError:
            self._connection.transport.abort()

    async def _send(self, message: bytes) -> None:
        # The end of a connection is noticed by `output`, which knows whether the program has ended before.
        try:
            await self._connection.send(message)
        except ConnectionClosed:
            await asyncio.Event().wait()


def _broken_off(closed: ConnectionClosed) -> BrokenOffError:
    said = closed.rcvd
    if said is None:
        return BrokenOffError("the connection broke")
    return BrokenOffError(said.reason or "the server ended it", is_final=said.code in _SAID_BY_SERVER)
