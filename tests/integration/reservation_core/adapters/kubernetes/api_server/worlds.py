"""A server that says what it is told to, and a way to it: with TLS and without, on both sorts of event loops."""

import asyncio
import gc
import inspect
import json
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop

from reservation_core.adapters.kubernetes.api_server import http_pool
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from tests.integration.reservation_core.adapters.kubernetes.conftest import transport_to
from tests.kubernetes.kubeconfigs import write_kubeconfig
from tests.network.scripted_http import ScriptedServer, scripted_server

Certificate = tuple[Path, Path]

PATH = "/api/v1/namespaces/a/pods/b/binding"


def answer(said: object, *more: str, code: int = 200) -> bytes:
    """An answer with a length."""
    body = json.dumps(said).encode()
    lines = [f"HTTP/1.1 {code} Said", "Content-Type: application/json", f"Content-Length: {len(body)}", *more]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*chunks: bytes, trailer: str = "") -> bytes:
    """An answer without one."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + body + b"0\r\n" + trailer.encode() + b"\r\n"


GOOD = answer({"said": "good"})


@dataclass(frozen=True)
class World:
    """A server, and a way to it on which nobody has to hurry."""

    server: ScriptedServer
    transport: Transport
    folder: Path
    ca: Path | None

    def way(self, timeout_s: float, limit_s: float | None = None, token: str = "token") -> Transport:
        """Another way to the same server; who asks for it closes it."""
        config = write_kubeconfig(self.folder / "another", self.server.url, token, ca=self.ca)
        return Transport(Credentials(config, None, {}), timeout_s, limit_s)


async def _in_a_world(
    test: Callable[..., Awaitable[None]], folder: Path, certificate: Certificate, given: dict[str, Any], *, tls: bool
) -> None:
    context, ca = None, None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        ca = certificate[0]
    async with scripted_server(GOOD, context) as server:
        transport = transport_to(write_kubeconfig(folder / "config", server.url, "token", ca=ca), 60)
        try:
            await test(World(server, transport, folder, ca), **given)
        finally:
            await transport.close()


def in_both_worlds(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test, whose first parameter is a world, without TLS on asyncio's event loop, and with it on uvloop's."""

    def run(uv: bool, tmp_path: Path, certificate: Certificate, **given: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if uv else asyncio.new_event_loop) as runner:
            runner.run(_in_a_world(test, tmp_path, certificate, given, tls=uv))
        gc.collect()  # what outlives the event loop is told as a ResourceWarning, which is an error

    own = [*inspect.signature(run).parameters.values()][:3]
    given = [*inspect.signature(test).parameters.values()][1:]
    run.__signature__ = inspect.Signature([*own, *given])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return pytest.mark.parametrize("uv", [False, True], ids=["plain", "tls"])(run)


class Unanswered:
    """Counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


async def bind(transport: Transport, unanswered: Unanswered | None = None) -> dict[str, Any]:
    """A question that is not to be asked twice without a word."""
    return await transport.request("POST", PATH, query={"timeout": "4s"}, body={"a": "b"}, unanswered=unanswered)


def pool_of(transport: Transport) -> http_pool.HttpPool:
    """Its connections of now."""
    connection = transport._connection
    assert connection is not None
    assert connection._pool is not None
    return connection._pool
