"""Identities of the API server and of ours, for requests over connections of our own."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reservation_core.adapters.kubernetes.api_server import http_pool
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.kubeconfigs import write_kubeconfig
from tests.network.scripted_http import ScriptedServer, scripted_server
from tests.read_yaml import read_yaml

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
Certificate = tuple[Path, Path]


@pytest.fixture
async def server(certificate: Certificate) -> AsyncIterator[ScriptedServer]:
    """It speaks to nobody whose certificate it doesn't know."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate[0])
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    async with scripted_server(GOOD, context) as server:
        yield server


def way(folder: Path, url: str, certificate: Certificate, *, known: bool = True, **cluster: Any) -> Transport:
    """A way there; who is `known` has the certificate's key."""
    config = write_kubeconfig(folder / "config", url, "token", ca=certificate[0])
    said = read_yaml(config.read_text())
    said["clusters"][0]["cluster"].update(cluster)
    if known:
        user = {"client-certificate": str(certificate[0]), "client-key": str(certificate[1])}
        said["users"][0]["user"].update(user)
    config.write_text(yaml.safe_dump(said))
    return transport_to(config)


async def ask(transport: Transport) -> int:
    """One question; answers how often it was said that it may have arrived."""
    heard: list[None] = []
    try:
        await transport.request("POST", "/a", unanswered=lambda: heard.append(None))
    finally:
        await transport.close()
    return len(heard)


async def test_our_certificate_is_shown(server: ScriptedServer, certificate: Certificate, tmp_path: Path) -> None:
    assert await ask(way(tmp_path, server.url, certificate)) == 0
    assert len(server.asked) == 1


async def test_nobody_is_spoken_to_without_one(
    server: ScriptedServer, certificate: Certificate, tmp_path: Path
) -> None:
    with pytest.raises(ClusterUnavailableError):
        await ask(way(tmp_path, server.url, certificate, known=False))
    assert not server.asked


async def test_a_name_of_its_own_is_what_the_servers_certificate_has_to_say(
    server: ScriptedServer, certificate: Certificate, tmp_path: Path
) -> None:
    url = server.url.replace("127.0.0.1", "localhost")
    assert await ask(way(tmp_path, url, certificate, **{"tls-server-name": "127.0.0.1"})) == 0
    assert len(server.asked) == 1


@pytest.mark.parametrize("name", [None, "other.example"])
async def test_a_server_of_another_name_is_asked_nothing(
    server: ScriptedServer, certificate: Certificate, tmp_path: Path, name: str | None
) -> None:
    url = server.url.replace("127.0.0.1", "localhost") if name is None else server.url
    cluster = {} if name is None else {"tls-server-name": name}
    heard: list[None] = []
    transport = way(tmp_path, url, certificate, **cluster)
    with pytest.raises(ClusterUnavailableError, match="no connection to"):
        await transport.request("POST", "/a", unanswered=lambda: heard.append(None))
    await transport.close()
    assert not heard
    assert not server.asked


@pytest.mark.parametrize(
    ("family", "address", "more"), [(2, "127.0.0.2", ()), (10, "::1", (0, 0))], ids=["same sort", "other sort"]
)
async def test_an_address_where_somebody_else_answers_is_passed_by(
    server: ScriptedServer,
    certificate: Certificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: int,
    address: str,
    more: tuple[int, ...],
) -> None:
    """One of several servers behind a name may be broken; `localhost` has two addresses, and perhaps two tenants."""
    port = int(server.url.rpartition(":")[2])
    visitors = 0

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visitors
        visitors += 1
        writer.close()

    async def found(*_: object, **rules: int) -> list[Any]:
        return [(family, 1, 6, "", (address, port, *more)), (2, 1, 6, "", ("127.0.0.1", port))]

    try:
        broken = await asyncio.start_server(refuse, address, port)
    except OSError:
        if family == 2:
            raise
        pytest.skip("this machine has no IPv6, or something listens there")
    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", found)
    monkeypatch.setattr(http_pool, "_NEXT_ADDRESS_AFTER_S", 3600)
    transport = way(tmp_path, f"https://server.example:{port}", certificate, **{"tls-server-name": "127.0.0.1"})
    assert await ask(transport) == 0
    assert (visitors, len(server.asked)) == (1, 1)
    broken.close()
    await broken.wait_closed()
