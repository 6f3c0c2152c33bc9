"""Pass bytes between a WebSocket and a program or a port inside a job, until one side or the right to it ends.

A reader that is slow makes the writer wait, all the way: nothing is gathered here.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from api_service.sessions.channels import Channel, size_in, status_of
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import InputClosedError, PodConnection, ProgramEnd, RunningProgram
from reservation_core.runtime.sessions.connections import Connection

NORMAL = 1000
_UNSUPPORTED = 1003
_LOST = "The connection to the job broke off. Try again."
_log = structlog.get_logger(__name__)


class _LeftError(Exception):
    """The client has gone. `closed`: it said so, and did not just break off."""

    def __init__(self, *, closed: bool) -> None:
        super().__init__()
        self.closed = closed


async def stream_program(socket: WebSocket, program: RunningProgram, connection: Connection, *, terminal: bool) -> None:
    """Serve an accepted WebSocket until the program ends, the client leaves or the connection must end.

    A client that closes its side properly (1000) hangs the program up; one that breaks off leaves it in its terminal.
    """
    if terminal:
        connection.show = lambda text: _show_soon(socket, text)
    keep = True
    try:
        keep = not await _first_of(
            _send_output(socket, program, connection), _take_messages(socket, program, connection), connection
        )
        if connection.over.is_set():
            await _finish(socket, ProgramEnd(None, connection.why))
    except ClusterUnavailableError as error:
        _log.warning("session_broken_off", job=connection.entered.pod.reservation_id, error=str(error))
        await _finish(socket, ProgramEnd(None, _LOST))
    finally:
        connection.show = None
        await program.close(keep=keep and terminal)


async def stream_port(socket: WebSocket, port: PodConnection, connection: Connection) -> None:
    """The same for a TCP connection, whose bytes are binary messages; an empty one is the end of a direction."""
    try:
        await _first_of(_send_bytes(socket, port, connection), _take_bytes(socket, port, connection), connection)
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(NORMAL, connection.why[:100])
    except ClusterUnavailableError as error:
        _log.warning("forward_broken_off", job=connection.entered.pod.reservation_id, error=str(error))
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(1011, _LOST)
    finally:
        await port.close()


async def _first_of(outward: Awaitable[None], inward: Awaitable[None], connection: Connection) -> bool:
    """Run both directions until the outward one ends, the client leaves or the connection is over.

    Returns whether the end was an orderly one. Raises what a direction raised.
    """
    out, into = asyncio.ensure_future(outward), asyncio.ensure_future(inward)
    over = asyncio.ensure_future(connection.over.wait())
    waiting = {out, into, over}
    try:
        while True:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if out in done or over in done:
                return True
    except _LeftError as left:
        return left.closed
    finally:
        for task in (out, into, over):
            task.cancel()
        await asyncio.gather(out, into, over, return_exceptions=True)


async def _send_output(socket: WebSocket, program: RunningProgram, connection: Connection) -> None:
    async for outlet, data in program.output():
        connection.note_bytes()
        await _send(socket, bytes((outlet,)) + data)
    await _finish(socket, await program.wait())


async def _take_messages(socket: WebSocket, program: RunningProgram, connection: Connection) -> None:
    """Pass input on until the client leaves."""
    while True:
        content = await _received(socket)
        if not content:
            continue
        connection.note_bytes()
        try:
            match content[0]:
                case Channel.STDIN:
                    await program.write(content[1:])
                case Channel.RESIZE:
                    if (size := size_in(content[1:])) is not None:
                        await program.resize(size)
                case Channel.CLOSE:
                    if content[1:] == bytes((Channel.STDIN,)):
                        await program.close_input()
                case _:
                    continue  # Kubernetes ignores them, too
        except InputClosedError:
            continue  # the program reads no more; its output may go on


async def _send_bytes(socket: WebSocket, port: PodConnection, connection: Connection) -> None:
    while data := await port.read():
        connection.note_bytes()
        await _send(socket, data)
    await _send(socket, b"")


async def _take_bytes(socket: WebSocket, port: PodConnection, connection: Connection) -> None:
    while True:
        content = await _received(socket)
        connection.note_bytes()
        try:
            if content:
                await port.write(content)
            else:
                await port.close_input()
        except InputClosedError:
            continue


async def _received(socket: WebSocket) -> bytes:
    """The next binary message. Raises _LeftError."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise _LeftError(closed=message.get("code") == NORMAL)
    content: bytes | None = message.get("bytes")
    if content is None:
        await socket.close(_UNSUPPORTED, "Send binary messages.")
        raise _LeftError(closed=True)
    return content


async def _send(socket: WebSocket, content: bytes) -> None:
    try:
        await socket.send_bytes(content)
    except (WebSocketDisconnect, RuntimeError) as error:
        raise _LeftError(closed=False) from error


async def _finish(socket: WebSocket, end: ProgramEnd) -> None:
    with suppress(RuntimeError, WebSocketDisconnect):
        await socket.send_bytes(status_of(end))
        await socket.close(NORMAL)


_showing: set[asyncio.Task[None]] = set()


def _show_soon(socket: WebSocket, text: str) -> None:
    """Show a message on the terminal, on a line of its own."""

    async def show() -> None:
        with suppress(_LeftError):
            await _send(socket, bytes((Channel.STDOUT,)) + f"\r\n\a*** {text} ***\r\n".encode())

    task = asyncio.create_task(show())
    _showing.add(task)
    task.add_done_callback(_showing.discard)
