"""The ProxyCommand of OpenSSH: its bytes over a WebSocket, where no port of SSH is open."""

import asyncio
from typing import TYPE_CHECKING

from websockets.exceptions import ConnectionClosed, ConnectionClosedError

from gpu_dev.calls.session_calls import SessionCalls
from gpu_dev.errors import UnreachableError
from gpu_dev.sessions.descriptors import read_ready, write_all

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


async def carry_ssh(calls: SessionCalls, job: str) -> None:
    """Carry stdin and stdout to the SSH server until one of the sides ends. Raises ClientError."""
    connection = await calls.ssh(job)
    typing = asyncio.create_task(_pass_up(connection))
    try:
        while True:
            await write_all(1, await connection.recv(decode=False))
    except ConnectionClosedError as error:
        raise UnreachableError(f"The connection to the SSH server broke: {error}") from error
    except (ConnectionClosed, BrokenPipeError):
        return
    finally:
        typing.cancel()
        await connection.close()


async def _pass_up(connection: "ClientConnection") -> None:
    while data := await read_ready(0):
        await connection.send(data)
    await connection.close()
