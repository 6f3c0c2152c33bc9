"""Local ports that lead into a job: each TCP connection is a WebSocket of its own."""

import asyncio
import os
import shlex
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed

from gpu_dev.calls.session_calls import SessionCalls
from gpu_dev.display.local_times import local_sentence
from gpu_dev.errors import ClientError, UsageError
from gpu_dev.sessions.descriptors import READ_BYTES
from gpu_dev.terminal import put, say

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

HOST = "127.0.0.1"
_LARGEST_PORT = 65_535
_END = b""
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Forward:
    """A port of this machine (0: any free one) that leads to a port in the job."""

    local: int
    remote: int


def read_forward(text: str, job: str = "ID") -> Forward:
    """Read `LOCAL:PORT`, or `PORT` for the same number on both sides. Raises UsageError, which names `job`."""
    numbers = [_port(part) for part in text.split(":")]
    match numbers:
        case [int() as port] if port:
            return Forward(port, port)
        case [int() as local, int() as remote] if remote:
            return Forward(local, remote)
    raise UsageError(
        f"{text!r} names no ports, which are numbers up to {_LARGEST_PORT}. Write LOCAL:PORT, such as 8080:8888; "
        "0:8888 takes any free local port.",
        next_command=f"gpu-dev forward {shlex.quote(job)} 8080:8888",
    )


def _port(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_PORT))
    return int(text) if is_number and int(text) <= _LARGEST_PORT else None


def forward_ports(calls: SessionCalls, job_id: str, forwards: Sequence[Forward], rank: int) -> None:
    """Print what each local port leads to, and serve them until Ctrl-C."""
    asyncio.run(_forward_ports(calls, job_id, forwards, rank))


async def _forward_ports(calls: SessionCalls, job_id: str, forwards: Sequence[Forward], rank: int) -> None:
    async with listening(calls, job_id, forwards, rank=rank) as listened:
        for one in listened:
            put(f"{HOST}:{one.local} leads to port {one.remote} of {job_id}\n")
        await asyncio.Event().wait()


@asynccontextmanager
async def listening(
    calls: SessionCalls, job_id: str, forwards: Sequence[Forward], *, rank: int = 0
) -> AsyncIterator[list[Forward]]:
    """Accept connections during the block; yields the forwards with their local ports.

    Raises UsageError for a local port that can't be had.
    """
    async with AsyncExitStack() as opened:
        listened = []
        for forward in forwards:
            serve = partial(_serve, calls, job_id, forward.remote, rank)
            try:
                server = await asyncio.start_server(serve, HOST, forward.local, limit=READ_BYTES)
            except OSError as error:
                raise UsageError(
                    f"Port {forward.local} of this machine can't be used: {os.strerror(error.errno or 0)}. "
                    f"0:{forward.remote} takes any free port."
                ) from error
            opened.callback(server.close)
            listened.append(Forward(server.sockets[0].getsockname()[1], forward.remote))
        yield listened


async def _serve(
    calls: SessionCalls, job_id: str, port: int, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry one local connection, whose end is that of the one in the job: an orderly end or a reset."""
    try:
        connection = await calls.connect(job_id, port, rank=rank)
    except ClientError as error:
        say(f"port {port}: {local_sentence(error.detail)}")
        _reset(writer)
        return
    try:
        await _pass_both_ways(reader, writer, connection)
    except (ConnectionClosed, OSError):
        _reset(writer)
    finally:
        writer.close()
        await connection.close()


async def _pass_both_ways(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: "ClientConnection"
) -> None:
    directions = [
        asyncio.create_task(_pass_up(reader, connection)),
        asyncio.create_task(_pass_down(connection, writer)),
    ]
    try:
        await asyncio.gather(*directions)
    finally:
        for direction in directions:
            direction.cancel()


async def _pass_up(reader: asyncio.StreamReader, connection: "ClientConnection") -> None:
    while data := await reader.read(READ_BYTES):
        await connection.send(data)
    await connection.send(_END)


async def _pass_down(connection: "ClientConnection", writer: asyncio.StreamWriter) -> None:
    while data := await connection.recv(decode=False):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a local connection as one that was refused or broke."""
    opened = writer.get_extra_info("socket")
    with suppress(OSError):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    writer.transport.abort()
