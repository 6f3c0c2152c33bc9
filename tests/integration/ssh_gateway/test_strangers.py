"""What SSH clients may do before they have authenticated, and how much they may open then."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncssh
import pytest

from reservation_core.runtime.settings.components import SshGatewaySettings
from reservation_core.runtime.ssh.counts import SshRefusal
from reservation_core.runtime.ssh.key_checks import MOST_TRIES
from reservation_core.runtime.ssh.lobby import HANDSHAKE_BYTES
from reservation_core.runtime.wiring import Runtime
from tests.integration.ssh_gateway.conftest import Gateway, gateway_of
from tests.integration.ssh_gateway.ssh_clients import add_key
from tests.waiting import PATIENCE_S, eventually

Connect = Callable[..., Any]


@pytest.fixture
async def key(runtime: Runtime, users: dict[str, int]) -> asyncssh.SSHKey:
    """A key of alice's."""
    made = asyncssh.generate_private_key("ssh-ed25519")
    async with runtime.uow() as uow:
        await add_key(uow, users["alice"], "key-asyncssh", made.export_public_key().decode(), runtime.clock.now())
    return made


@asynccontextmanager
async def connected(gateway: Gateway, keys: object) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with asyncssh.connect(
        "127.0.0.1",
        gateway.port,
        username="box",
        client_keys=keys,
        known_hosts=None,
        agent_path=None,
        config=None,
        login_timeout=PATIENCE_S,
    ) as connection:
        yield connection


async def test_a_public_key_alone_opens_nothing(gateway: Gateway, job: str, key: asyncssh.SSHKey) -> None:
    (forged,) = asyncssh.load_keypairs([asyncssh.generate_private_key("ssh-ed25519")])
    forged.public_data = key.public_data
    with pytest.raises(asyncssh.PermissionDenied):
        async with connected(gateway, [forged]):
            pass
    async with connected(gateway, [key]) as connection:
        assert (await connection.run("echo in")).stdout == "in\n"


async def test_a_client_tries_so_many_keys_and_no_more(gateway: Gateway, job: str, key: asyncssh.SSHKey) -> None:
    wrong = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(MOST_TRIES + 1)]
    async with connected(gateway, [*wrong[1:], key]) as connection:
        assert (await connection.run("echo in")).stdout == "in\n"
    with pytest.raises(asyncssh.PermissionDenied, match="Too many keys"):
        async with connected(gateway, [*wrong, key]):
            pass


async def test_a_server_has_so_many_clients_and_no_more(runtime: Runtime, job: str, key: asyncssh.SSHKey) -> None:
    ssh = {"listen": "127.0.0.1:0", "max_connections": 2}
    async with (
        gateway_of(runtime, SshGatewaySettings.model_validate({"ssh": ssh})) as gateway,
        AsyncExitStack() as all_,
    ):
        first = await all_.enter_async_context(connected(gateway, [key]))
        await all_.enter_async_context(connected(gateway, [key]))
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
        assert runtime.ssh.refused[SshRefusal.SERVER_FULL] == 1
        first.close()
        await eventually(lambda: runtime.ssh.open == 1)
        await all_.enter_async_context(connected(gateway, [key]))


async def test_what_a_stranger_sends_is_bounded_also_where_it_is_well_formed(runtime: Runtime) -> None:
    ssh = {"listen": "127.0.0.1:0", "handshake_s": 600}
    async with gateway_of(runtime, SshGatewaySettings.model_validate({"ssh": ssh})) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        await reader.readline()
        ignored = b"\x02" + (20_000).to_bytes(4, "big") + bytes(20_000)  # SSH_MSG_IGNORE
        padding = 8 - (len(ignored) + 5) % 8 + 8
        packet = (len(ignored) + padding + 1).to_bytes(4, "big") + bytes([padding]) + ignored + bytes(padding)
        writer.write(b"SSH-2.0-chatty\r\n" + packet * (HANDSHAKE_BYTES // len(packet) + 1))
        try:
            await eventually(lambda: runtime.ssh.open == 0)
        finally:
            writer.close()


async def test_a_connection_has_so_many_streams_and_no_more(runtime: Runtime, job: str, key: asyncssh.SSHKey) -> None:
    ssh = {"listen": "127.0.0.1:0", "streams_per_connection": 2}
    async with (
        gateway_of(runtime, SshGatewaySettings.model_validate({"ssh": ssh})) as gateway,
        connected(gateway, [key]) as connection,
    ):
        programs = [await connection.create_process("echo in; cat") for _ in range(2)]
        assert [await program.stdout.readline() for program in programs] == ["in\n", "in\n"]
        with pytest.raises(asyncssh.ChannelOpenError, match="2 streams already"):
            await connection.create_process("true")
        programs[0].stdin.write_eof()
        await programs[0].wait()
        assert (await connection.run("echo again")).stdout == "again\n"
