"""A client of the API server, with its pools of connections: who closes it leaves no socket open.

A request that is given up, and a connection that was idle for long, end with TLS's farewell, which waits for the other
side's: half a minute, where that is silent. The pool knows nothing of them any more, so we know our sockets ourselves.

There are two ways: what is answered whole goes over connections of our own, which cost little, where the server is
reached directly. Streams, what goes through a proxy, and what the server sends elsewhere go over aiohttp's.
"""

import asyncio
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.request import getproxies

import aiohttp
import structlog
from kubernetes.aio.client.rest import RESTClientObject
from yarl import URL

from reservation_core.adapters.kubernetes.api_server.credentials import ClusterAccess
from reservation_core.adapters.kubernetes.api_server.http_pool import HttpPool
from reservation_core.adapters.kubernetes.api_server.request_heads import RequestHeads
from reservation_core.adapters.kubernetes.api_server.requests import ApiRequest, ApiServerAnswer, headers_of_all
from reservation_core.domain.network.environment_proxies import proxy_for

_FAREWELL_S = 1.0
_LONGEST_LINE_BYTES = 2**21
"""What aiohttp keeps of a stream that nobody reads at the moment: a watch's event may be as long."""

_log = structlog.get_logger(__name__)


class PooledClient:
    """A client with its pools of connections; one that is retired is closed when its last request has ended."""

    def __init__(self, access: ClusterAccess) -> None:
        """Raises OSError and ValueError for certificates and addresses that can't be used."""
        configuration = access.configuration
        self.fingerprint = access.fingerprint
        self.users = 0
        self.waits: set[asyncio.Timeout] = set()
        """The limits of those who wait for an answer, or for a stream's head."""
        self.retired = False
        self._streams: set[aiohttp.ClientResponse] = set()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._host: str = configuration.host
        self._headers = headers_of_all(None)
        self._server_name: str | None = configuration.tls_server_name
        url = URL(self._host)
        for name in (url.raw_host, self._server_name):
            (name or "").encode("idna")  # as who looks it up does, and TLS
        context = RESTClientObject(configuration).ssl_context
        # Streams come and go; who calls bounds the rest.
        self._connector = aiohttp.TCPConnector(limit=0, ssl=context, socket_factory=self._open)
        self._rules = _rules(configuration)
        self._session: aiohttp.ClientSession | None = None
        self._heads = RequestHeads(url)
        self._pool: HttpPool | None = None
        if _is_simple(url) and url.raw_host is not None and url.port is not None and not self._rules:
            tls = context if url.scheme == "https" else None
            self._pool = HttpPool(url.raw_host, url.port, tls, self._server_name, self._open)

    def use_token(self, token: str | None) -> None:
        """Say from now on who asks; `token` with its scheme. Raises ValueError for one of several lines."""
        headers = headers_of_all(token)
        self._heads.say(headers)
        self._headers = headers

    async def ask(self, request: ApiRequest) -> ApiServerAnswer:
        """The whole answer, whatever it is. Waits as long as whoever asks does.

        Raises OSError and aiohttp.ClientError.
        """
        if self._pool is not None:
            answer = await self._pool.ask(request.method, self._heads.of(request))
            if not _sends_elsewhere(answer.status):
                return answer
        response = await self._send(request, aiohttp.ClientTimeout(total=None))
        return await _whole(response)

    async def open(self, request: ApiRequest, connect_s: float) -> ApiServerAnswer:
        """A good answer as an OpenAnswer, any other whole. Connecting takes `connect_s` seconds at most.

        Raises as `ask` does.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=request.idle_s)
        response = await self._send(request, timeout)
        if response.status >= 300:
            return await _whole(response)
        self._streams.add(response)
        return OpenAnswer(self, response)

    async def let_go(self, stream: aiohttp.ClientResponse) -> None:
        """One of its users has what it wanted of a stream."""
        self._streams.discard(stream)
        _cut(stream)
        await self.leave()

    async def leave(self) -> None:
        """One of its users has what it wanted."""
        self.users -= 1
        if self.retired:
            await self.close_if_unused()

    async def close_if_unused(self) -> None:
        """Close it where it is retired and nobody uses it any more."""
        if self.retired and self.users == 0:
            await self.close()

    async def close(self) -> None:
        """Close all of its connections; returns when their sockets are closed, and at the latest after some seconds.

        Requests that wait for an answer or read a stream are not kept waiting, and their session is closed with its
        pool.
        """
        for stream in self._streams:
            _cut(stream)  # aiohttp's pool ends its connections without a word to who reads
        for limit in self.waits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        if self._pool is not None:
            self._pool.close()
        await self._connector.close()
        # A socket that somebody is still connecting must be let alone: it has no owner yet who would learn of its end.
        if await _soon(lambda: not self.waits):
            for open_socket in self._open_sockets():
                with suppress(OSError):  # the other side has closed it already
                    open_socket.shutdown(socket.SHUT_RDWR)
        if not await _soon(lambda: not self._open_sockets()):
            _log.warning("connections are slow to close", server=self._host, connections=len(self._open_sockets()))

    async def _send(self, request: ApiRequest, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector,
                connector_owner=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_LONGEST_LINE_BYTES,
                trust_env=False,
            )
        return await self._session.request(
            request.method,
            self._host + request.target,
            data=request.body,
            headers={**self._headers, **request.headers()},
            server_hostname=self._server_name,
            timeout=timeout,
            **self._rules,
        )

    def _open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.add(opened)
        return opened

    def _open_sockets(self) -> list[socket.socket]:
        return [open_socket for open_socket in self._sockets if open_socket.fileno() >= 0]


class OpenAnswer(ApiServerAnswer):
    """The head of an answer that goes on; the rest is to be read from `raw`. Has to be let go of."""

    def __init__(self, connection: PooledClient, raw: aiohttp.ClientResponse) -> None:
        super().__init__(raw.status, b"", None)
        self.raw = raw
        self._connection = connection

    async def let_go(self) -> None:
        """Leave the answer where it is, and the connection to others."""
        await self._connection.let_go(self.raw)


async def _whole(response: aiohttp.ClientResponse) -> ApiServerAnswer:
    """An answer read to its end; nothing is left open, whatever is raised."""
    try:
        body = await response.read()
    finally:
        _cut(response)
    return ApiServerAnswer(response.status, body, response.headers.get("Retry-After"))


def _cut(response: aiohttp.ClientResponse) -> None:
    # What was read to its end has no connection any more. Any other is cut: a farewell would be waited for.
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


async def _soon(is_so: Callable[[], bool]) -> bool:
    """Whether it comes to be so while we wait: nobody tells when a socket is closed."""
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + _FAREWELL_S
    while not (so := is_so()) and clock() < give_up_at:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return so


def _is_simple(url: URL) -> bool:
    return url.scheme in ("http", "https") and url.raw_user is None


def _sends_elsewhere(status: int) -> bool:
    return status in (301, 302, 303, 307, 308)


def _rules(configuration: Any) -> dict[str, Any]:
    """What every request by aiohttp takes: the proxy for this server, the environment's where no other is configured.

    Looked up once, as aiohttp would anew, in a thread, for every request. Nobody's .netrc is looked at, as kubectl does
    not either.
    """
    headers = {"proxy_headers": configuration.proxy_headers} if configuration.proxy_headers else {}
    if configuration.proxy:
        return {"proxy": configuration.proxy, **headers}
    url = URL(configuration.host)
    proxy = proxy_for(url.scheme, url.host or "", url.port, getproxies())
    return {} if proxy is None else {"proxy": URL(proxy), **headers}
