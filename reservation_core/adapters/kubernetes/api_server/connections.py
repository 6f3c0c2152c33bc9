"""A client of the API server with its connection pools; closing the client closes every socket.

Cancelled requests and long-idle connections end with a TLS close handshake, which waits up to half a minute for a
silent peer. Pools forget these connections, so the client tracks its sockets itself.

Plain requests to a server that is reached directly use our own pool, which costs little CPU. Streams, WebSockets,
proxies and redirects use aiohttp.
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
from reservation_core.adapters.kubernetes.api_server.requests import ApiRequest, ApiServerAnswer, common_headers
from reservation_core.domain.network.environment_proxies import proxy_for

_FAREWELL_S = 1.0
_REDIRECTS = (301, 302, 303, 307, 308)
_LONGEST_LINE_BYTES = 2**21
"""Read buffer of a stream in aiohttp; a watch event can be this long."""

_log = structlog.get_logger(__name__)


class PooledClient:
    """A client with its connection pools. A retired client is closed when its last request has ended."""

    def __init__(self, access: ClusterAccess) -> None:
        """Raises OSError and ValueError for certificates and addresses that can't be used."""
        configuration = access.configuration
        self.fingerprint = access.fingerprint
        self.users = 0
        self.waits: set[asyncio.Timeout] = set()
        """Time limits of callers that wait for an answer or for a stream's head."""
        self.retired = False
        self._streams: set[aiohttp.ClientResponse] = set()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._host: str = configuration.host
        self._headers = common_headers(None)
        self._server_name: str | None = configuration.tls_server_name
        url = URL(self._host)
        for name in (url.raw_host, self._server_name):
            (name or "").encode("idna")  # name resolution and TLS would fail later
        context = RESTClientObject(configuration).ssl_context
        # No limit: callers bound their requests, and streams are few.
        self._connector = aiohttp.TCPConnector(limit=0, ssl=context, socket_factory=self._open)
        self._rules = _rules(configuration)
        self._session: aiohttp.ClientSession | None = None
        self._heads = RequestHeads(url)
        self._pool: HttpPool | None = None
        is_plain = url.scheme in ("http", "https") and url.raw_user is None and not self._rules
        if is_plain and url.raw_host is not None and url.port is not None:
            tls = context if url.scheme == "https" else None
            self._pool = HttpPool(url.raw_host, url.port, tls, self._server_name, self._open)

    def authenticate_with(self, token: str | None) -> None:
        """Authenticate later requests with `token` (with its scheme). Raises ValueError for one of several lines."""
        headers = common_headers(token)
        self._heads.set_headers(headers)
        self._headers = headers

    async def ask(self, request: ApiRequest) -> ApiServerAnswer:
        """Send a request and read its whole answer, whatever its status. The caller bounds the time.

        Raises OSError and aiohttp.ClientError.
        """
        if self._pool is not None:
            answer = await self._pool.ask(request.method, self._heads.of(request))
            if answer.status not in _REDIRECTS:
                return answer
        response = await self._send(request, aiohttp.ClientTimeout(total=None))
        return await _whole(response)

    async def open(self, request: ApiRequest, connect_s: float) -> ApiServerAnswer:
        """Open a stream: a good answer is an OpenAnswer, any other is read whole. Connecting takes at most `connect_s`.

        Raises as `ask` does.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=request.idle_s)
        response = await self._send(request, timeout)
        if response.status >= 300:
            return await _whole(response)
        self._streams.add(response)
        return OpenAnswer(self, response)

    async def open_websocket(self, request: ApiRequest) -> ApiServerAnswer:
        """Open a WebSocket: a good answer is an OpenWebSocket, any other has no body. The caller bounds the time.

        Raises as `ask` does.
        """
        try:
            raw = await self._open_session().ws_connect(
                URL(self._host + request.target, encoded=True),
                protocols=request.protocols,
                headers=self._headers,
                server_hostname=self._server_name,
                timeout=aiohttp.ClientWSTimeout(ws_close=_FAREWELL_S),
                **self._rules,
            )
        except aiohttp.WSServerHandshakeError as refusal:
            if refusal.status < 300:
                raise
            asked_pause = None if refusal.headers is None else refusal.headers.get("Retry-After")
            return ApiServerAnswer(refusal.status, b"", asked_pause)
        return OpenWebSocket(self, raw)

    async def hang_up(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        """Close a WebSocket, within a second whatever its peer does, and release the client."""
        number = _fileno(raw.get_extra_info("socket"))
        used = [open_socket for open_socket in self._open_sockets() if open_socket.fileno() == number]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await raw.close()
        finally:
            for open_socket in used:
                with suppress(OSError):
                    open_socket.shutdown(socket.SHUT_RDWR)  # a TLS close would wait for the peer
            await self.leave()

    async def let_go(self, stream: aiohttp.ClientResponse) -> None:
        """Cut a stream and release the client."""
        self._streams.discard(stream)
        _cut(stream)
        await self.leave()

    async def leave(self) -> None:
        """End one use of the client."""
        self.users -= 1
        await self.close_if_unused()

    async def close_if_unused(self) -> None:
        """Close a retired client without users."""
        if self.retired and self.users == 0:
            await self.close()

    async def close(self) -> None:
        """Close all connections, within a few seconds. Pending requests and streams fail at once."""
        for stream in self._streams:
            _cut(stream)  # closing aiohttp's pool would not wake the stream's readers
        for limit in self.waits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        if self._pool is not None:
            self._pool.close()
        await self._connector.close()
        # Sockets that are still connecting stay open: their tasks would not notice a shutdown.
        if await _wait_until(lambda: not self.waits):
            for open_socket in self._open_sockets():
                with suppress(OSError):  # the other side has closed it already
                    open_socket.shutdown(socket.SHUT_RDWR)
        if not await _wait_until(lambda: not self._open_sockets()):
            _log.warning("connections are slow to close", server=self._host, connections=len(self._open_sockets()))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector,
                connector_owner=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_LONGEST_LINE_BYTES,
                trust_env=False,
            )
        return self._session

    async def _send(self, request: ApiRequest, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        return await self._open_session().request(
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
    """The head of a stream; the body is read from `raw`. Callers must `let_go` of it."""

    def __init__(self, connection: PooledClient, raw: aiohttp.ClientResponse) -> None:
        super().__init__(raw.status, b"", None)
        self.raw = raw
        self._connection = connection

    async def let_go(self) -> None:
        """Stop reading and release the connection."""
        await self._connection.let_go(self.raw)


class OpenWebSocket(ApiServerAnswer):
    """A WebSocket to the API server, `raw`. Callers must `let_go` of it."""

    def __init__(self, connection: PooledClient, raw: aiohttp.ClientWebSocketResponse) -> None:
        super().__init__(101, b"", None)
        self.raw = raw
        self._connection = connection

    async def let_go(self) -> None:
        """Close it. To be called once."""
        await self._connection.hang_up(self.raw)


def _fileno(opened: Any) -> int:
    return -1 if opened is None else int(opened.fileno())


async def _whole(response: aiohttp.ClientResponse) -> ApiServerAnswer:
    """Read an answer to its end; nothing stays open, whatever is raised."""
    try:
        body = await response.read()
    finally:
        _cut(response)
    return ApiServerAnswer(response.status, body, response.headers.get("Retry-After"))


def _cut(response: aiohttp.ClientResponse) -> None:
    # A response that was read to its end has no connection. Others are aborted: a TLS close would wait for the peer.
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


async def _wait_until(holds: Callable[[], bool]) -> bool:
    """Poll a condition for about a second (closed sockets send no event); whether it came to hold."""
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + _FAREWELL_S
    while not (held := holds()) and clock() < give_up_at:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return held


def _rules(configuration: Any) -> dict[str, Any]:
    """Proxy arguments of every request by aiohttp: the configured proxy, else the environment's for this server.

    Looked up once here; with `trust_env` aiohttp would look it up in a thread for every request and read .netrc, which
    kubectl does not.
    """
    headers = {"proxy_headers": configuration.proxy_headers} if configuration.proxy_headers else {}
    if configuration.proxy:
        return {"proxy": configuration.proxy, **headers}
    url = URL(configuration.host)
    proxy = proxy_for(url.scheme, url.host or "", url.port, getproxies())
    return {} if proxy is None else {"proxy": URL(proxy), **headers}
