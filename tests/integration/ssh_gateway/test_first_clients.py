"""The first clients of a gateway share one attempt to make its server; its failure does not end the gateway."""

import asyncio
import threading
from importlib import import_module
from types import ModuleType

import pytest
from structlog.testing import capture_logs

from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.settings.components import SshGatewaySettings
from reservation_core.runtime.ssh import door
from reservation_core.runtime.ssh.door import SshDoor
from reservation_core.runtime.ssh.server import SshServer
from reservation_core.runtime.wiring import Runtime
from ssh_gateway.listening import run
from tests.database.sql import sql
from tests.integration.ssh_gateway.conftest import Gateway, gateway_of
from tests.waiting import PATIENCE_S, eventually


async def greeting(gateway: Gateway) -> bytes:
    """The first line that the gateway sends to a new client; empty when it closes the connection instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        return await asyncio.wait_for(reader.readline(), PATIENCE_S)
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The addresses of clients that have come to the door."""
    come: list[tuple[str, int]] = []
    original = SshDoor.connection

    async def connection(self: SshDoor, peer: tuple[str, int]) -> object:
        come.append(peer)
        return await original(self, peer)

    monkeypatch.setattr(SshDoor, "connection", connection)
    return come


class Loads:
    """The attempts to load a server: the first `failing` fail, and all wait for `gate`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: int = 0) -> None:
        self.gate = asyncio.Event()
        self.servers: list[SshServer] = []
        original = SshServer.load

        async def load(server: SshServer, port: int | None = None) -> None:
            self.servers.append(server)
            await self.gate.wait()
            if len(self.servers) <= failing:
                raise DatabaseUnavailableError("It does not answer.")
            await original(server, port)

        monkeypatch.setattr(SshServer, "load", load)


async def test_an_unexpected_error_at_a_client_leaves_the_gateway_serving(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, capture_logs() as log:

        def broken(name: str) -> ModuleType:
            raise ImportError(f"No module named {name!r}")

        patched.setattr(door, "import_module", broken)
        assert await greeting(gateway) == b""
        await eventually(lambda: any(line["event"] == "ssh_client_failed" for line in log))
    assert [line["error"] for line in log if line["event"] == "ssh_client_failed"] == ["ImportError"]
    assert (await greeting(gateway)).startswith(b"SSH-2.0-gpu-dev")
    assert not gateway.serving.done()


async def test_two_clients_at_once_make_one_server(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, waiting: list[tuple[str, int]]
) -> None:
    loads = Loads(monkeypatch)
    loads.gate.set()
    loaded = threading.Event()

    def slow(name: str) -> ModuleType:
        loaded.wait(PATIENCE_S)
        return import_module(name)

    monkeypatch.setattr(door, "import_module", slow)
    clients = asyncio.gather(greeting(gateway), greeting(gateway))
    try:
        await eventually(lambda: len(waiting) == 2, timeout=10)
    finally:
        loaded.set()
        greetings = await clients
    assert all(line.startswith(b"SSH-2.0-gpu-dev") for line in greetings)
    assert len(loads.servers) == 1


async def test_clients_of_an_outage_share_one_wait_for_the_database(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, waiting: list[tuple[str, int]]
) -> None:
    loads = Loads(monkeypatch, failing=1)
    clients = asyncio.gather(*(greeting(gateway) for _ in range(3)))
    try:
        await eventually(lambda: len(waiting) == 3, timeout=10)
    finally:
        loads.gate.set()
        greetings = await clients
    assert greetings == [b""] * 3
    assert len(loads.servers) == 1
    assert (await greeting(gateway)).startswith(b"SSH-2.0-gpu-dev")


async def test_the_end_of_the_gateway_closes_clients_that_wait(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, waiting: list[tuple[str, int]]
) -> None:
    Loads(monkeypatch)
    client = asyncio.create_task(greeting(gateway))
    await eventually(lambda: waiting)
    gateway.stop.set()
    await asyncio.wait_for(gateway.serving, PATIENCE_S)
    assert await client == b""


async def test_a_client_waits_in_the_backlog_while_others_are_connected(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, waiting: list[tuple[str, int]]
) -> None:
    ssh = {"listen": "127.0.0.1:0", "handshakes": 2}
    loads = Loads(monkeypatch, failing=1)
    async with gateway_of(runtime, SshGatewaySettings.model_validate({"ssh": ssh})) as gateway:
        clients = [asyncio.create_task(greeting(gateway)) for _ in range(3)]
        await eventually(lambda: len(waiting) == 2, timeout=10)
        loads.gate.set()
        greetings = await asyncio.gather(*clients)
    assert sorted(line[:4] for line in greetings) == [b"", b"", b"SSH-"]


async def test_an_unfit_host_key_is_found_before_a_client_comes(runtime: Runtime, settings: SshGatewaySettings) -> None:
    async with runtime.uow() as uow:
        await sql(uow, "INSERT INTO ssh_server_keys VALUES ('host', 'no key', now())")
    stop, ready = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(run(runtime, settings, stop, lambda _host, _port: ready.set()))
    try:
        await eventually(lambda: runtime.loops["ssh_keys"].failing_since is not None)
        assert not ready.is_set()
        async with runtime.uow() as uow:
            await sql(uow, "DELETE FROM ssh_server_keys WHERE purpose = 'host'")
        await asyncio.wait_for(ready.wait(), PATIENCE_S)
    finally:
        stop.set()
        await asyncio.wait_for(serving, PATIENCE_S)
