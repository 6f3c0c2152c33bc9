"""The way to the API server: through the environment's proxy, and with no login but the kubeconfig's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from reservation_core.adapters.kubernetes.api_server.retries import ONLY_METADATA, Transport
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.kubeconfigs import write_kubeconfig

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}


@dataclass
class Listener:
    """An HTTP server that answers everything with an empty object and keeps what it was asked."""

    url: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Keep the address as it was asked for, and the headers by their names in small letters."""
        self.asked.append((request.raw_path, {name.lower(): value for name, value in request.headers.items()}))
        return web.json_response({})


@pytest.fixture
async def listener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Listener]:
    """A server on this machine; nothing of the environment's proxies is left."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    listener = Listener()
    runner = web.ServerRunner(web.Server(listener.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield listener
    await runner.cleanup()


@asynccontextmanager
async def opened(kubeconfig: Path) -> AsyncIterator[Transport]:
    """The way that a kubeconfig shows, closed at the end."""
    transport = transport_to(kubeconfig)
    try:
        yield transport
    finally:
        await transport.close()


async def ask(folder: Path, url: str) -> None:
    """One question to a server of that address, with a token."""
    async with opened(write_kubeconfig(folder / "config", url, "token")) as transport:
        await transport.request("GET", "/api/v1/nodes")


async def test_the_environments_proxy_is_gone_through(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", listener.url.replace("//", "//somebody:secret@"))
    await ask(tmp_path, "http://api.example.org:6443")
    [(path, headers)] = listener.asked
    assert path == "http://api.example.org:6443/api/v1/nodes"
    assert headers["proxy-authorization"] == "Basic c29tZWJvZHk6c2VjcmV0"
    assert headers["authorization"] == "Bearer token"


async def test_what_is_excepted_from_the_proxy_is_asked_directly(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    await ask(tmp_path, listener.url)
    assert [path for path, _ in listener.asked] == ["/api/v1/nodes"]


async def test_nobodys_netrc_is_sent_to_the_server(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    config = write_kubeconfig(tmp_path / "config", listener.url, "token")
    config.write_text(config.read_text().replace("token: token", "{}"))
    async with opened(config) as transport:
        await transport.request("GET", "/api/v1/nodes")
    [(_, headers)] = listener.asked
    assert "authorization" not in headers


async def test_the_environment_is_read_once_for_many_requests(
    listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(write_kubeconfig(tmp_path / "config", listener.url, "token")) as transport:
        await transport.request("GET", "/api/v1/nodes")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nobody is there
        await transport.request("GET", "/api/v1/nodes")
    assert len(listener.asked) == 2


async def test_of_what_is_created_only_the_metadata_is_asked_for_where_the_server_can(
    listener: Listener, tmp_path: Path
) -> None:
    async with opened(write_kubeconfig(tmp_path / "config", listener.url, "token")) as transport:
        await transport.request("POST", "/api/v1/namespaces/a/pods", body=POD, accept=ONLY_METADATA)
    [(_, headers)] = listener.asked
    first, *others = [part.strip() for part in headers["accept"].split(",")]
    assert first == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert "application/json" in others
