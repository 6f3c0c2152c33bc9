"""Pass bytes between a WebSocket and a program or a port inside a job, until one side or the right to it ends.

A reader that is slow makes the writer wait, all the way: nothing is gathered here.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from enum import Enum, auto

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from api_service.sessions.channels import Channel, size_in, status_of
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import InputClosedError, PodConnection, ProgramEnd, RunningProgram
from reservation_core.runtime.http.bounded_websocket import PEER, Peer
from reservation_core.runtime.sessions.connections import Connection

NORMAL = 1000
_UNSUPPORTED = 1003
_NOT_ALLOWED = 1008
_FAILED = 1011
_STOPS = 1012
_LAST_WORDS_S = 5.0
_TERMINAL = b"gpu-dev-terminal"
_LOST = "The cluster lost the way to the job's pod. Try again."
_log = structlog.get_logger(__name__)


class _LeftError(Exception):
    """The client has gone."""


class _End(Enum):
    """Why a stream is over."""

    ENDED = auto()
    LEFT = auto()
    BROKEN_OFF = auto()
    OVER = auto()


async def stream_program(
    socket: WebSocket,
    program: RunningProgram,
    connection: Connection,
    *,
    subprotocol: str,
    terminal: bool,
    first: bytes = b"",
) -> None:
    """Accept a WebSocket, and serve it until the program ends, the client leaves or the connection must end.

    `first` is shown before all output. A client that closes its side properly (1000) hangs the program up, and so does
    the end of its right to be there; one that breaks off, or the end of this process, leaves it in its terminal.
    """
    keep = terminal
    try:
        await _accept(socket, subprotocol, program.terminal_key)
        if terminal:
            connection.show = lambda text: _show_soon(socket, text)
        if first:
            await _send(socket, bytes((Channel.STDOUT,)) + first)
        out, into = _send_output(socket, program, connection), _take_messages(socket, program, connection)
        end = await _until_end(socket, connection, out, into, both=False)
        keep = terminal and (end is _End.BROKEN_OFF or (end is _End.OVER and connection.stopping))
        if end is _End.OVER:
            # Without a status clients know that they may come back.
            await _close(socket, connection, b"" if keep else status_of(ProgramEnd(None, connection.why)))
    except _LeftError:
        keep = False  # it never saw the program
    except ClusterUnavailableError as error:
        _log.warning("session_broken_off", job=connection.entered.pod.reservation_id, error=str(error))
        await _finish(socket, ProgramEnd(None, _LOST))
    finally:
        connection.show = None
        await program.close(keep=keep)


async def stream_port(socket: WebSocket, port: PodConnection, connection: Connection) -> None:
    """The same for a TCP connection, whose bytes are binary messages; an empty one is the end of a direction."""
    try:
        await _accept(socket)
        out, into = _send_bytes(socket, port, connection), _take_bytes(socket, port, connection)
        if await _until_end(socket, connection, out, into, both=True) is _End.OVER:
            await _close(socket, connection)
        else:
            with suppress(RuntimeError, WebSocketDisconnect):
                await socket.close(NORMAL)
    except _LeftError:
        return
    except ClusterUnavailableError as error:
        _log.warning("forward_broken_off", job=connection.entered.pod.reservation_id, error=str(error))
        with suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(_FAILED, _LOST)
    finally:
        await port.close()


async def _accept(socket: WebSocket, subprotocol: str | None = None, terminal_key: str | None = None) -> None:
    headers = [] if terminal_key is None else [(_TERMINAL, terminal_key.encode("latin-1"))]
    try:
        await socket.accept(subprotocol, headers)
    except (WebSocketDisconnect, RuntimeError, OSError) as error:
        raise _LeftError from error


async def _until_end(socket: WebSocket, connection: Connection, *directions: Awaitable[None], both: bool) -> _End:
    """Run the directions until both or one have ended, the client leaves or the connection is over.

    Raises what a direction raised.
    """
    peer: Peer = socket.scope["extensions"][PEER]
    running = [asyncio.ensure_future(direction) for direction in directions]
    over, gone = asyncio.ensure_future(connection.over.wait()), asyncio.ensure_future(peer.gone.wait())
    try:
        while not (all if both else any)(direction.done() for direction in running):
            unfinished = [direction for direction in running if not direction.done()]
            await asyncio.wait({*unfinished, over, gone}, return_when=asyncio.FIRST_COMPLETED)
            left = [_has_left(direction) for direction in running if direction.done()]
            if over.done():
                return _End.OVER
            if gone.done() or any(left):
                return _End.LEFT if peer.left_in_order else _End.BROKEN_OFF
        return _End.ENDED
    finally:
        for task in (*running, over, gone):
            task.cancel()
        await asyncio.gather(*running, over, gone, return_exceptions=True)


def _has_left(direction: "asyncio.Future[None]") -> bool:
    """Whether a direction that is over has found the client gone. Raises what else it raised."""
    try:
        direction.result()
    except _LeftError:
        return True
    return False


async def _close(socket: WebSocket, connection: Connection, last: bytes = b"") -> None:
    """Say why a connection must end, to a client that may have stopped reading."""
    with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            if last:
                await socket.send_bytes(last)
            await socket.close(_STOPS if connection.stopping else _NOT_ALLOWED, connection.why[:100])


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
            if not content:
                await port.close_input()
                return
            await port.write(content)
        except InputClosedError:
            return


async def _received(socket: WebSocket) -> bytes:
    """The next binary message. Raises _LeftError."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise _LeftError
    content: bytes | None = message.get("bytes")
    if content is None:
        await socket.close(_UNSUPPORTED, "Send binary messages.")
        raise _LeftError
    return content


async def _send(socket: WebSocket, content: bytes) -> None:
    try:
        await socket.send_bytes(content)
    except (WebSocketDisconnect, RuntimeError) as error:
        raise _LeftError from error


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
