"""A pool of kept-alive HTTP/1.1 connections to one API server (http_exchange.py says why it is our own).

When the server closes a kept connection, idempotent requests are repeated at once on a new one; all other retries are
the caller's decision.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address

import aiohappyeyeballs
import aiohttp

from reservation_core.adapters.kubernetes.api_server.http_exchange import BrokenConnectionError, HttpExchange
from reservation_core.adapters.kubernetes.api_server.requests import ApiServerAnswer

_KEPT_S = 15.0
_ADDRESSES_LAST_S = 10.0
_NEXT_ADDRESS_AFTER_S = 0.25
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})

OpenSocket = Callable[[aiohttp.AddrInfoType], socket.socket]


class NotConnectedError(ConnectionError):
    """No connection could be opened, so nothing was sent."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"no connection to {host}:{port}")
        self.host = host
        self.port = port


class HttpPool:
    """Connections to one server, over TLS with a `context`; `open_socket` creates every socket.

    Callers bound the number of concurrent requests. `server_name` is the name in the server's certificate, where it
    differs from the host.
    """

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext | None, server_name: str | None, open_socket: OpenSocket
    ) -> None:
        self._host, self._port = host, port
        self._context = context
        self._server_name = None if context is None else (server_name or host.rstrip("."))
        self._open_socket = open_socket
        self._idle: list[HttpExchange] = []
        self._open: set[HttpExchange] = set()
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._resolving = asyncio.Lock()
        self._addresses: Sequence[aiohttp.AddrInfoType] = ()
        self._resolved_at = 0.0
        self._closed = False

    async def ask(self, method: str, data: bytes) -> ApiServerAnswer:
        """Send `data`, a whole request of that method, and wait for its answer; the caller bounds the time.

        Raises NotConnectedError when no connection could be opened, and BrokenConnectionError when the server may have
        carried the request out.
        """
        exchange = self._take_idle()
        if exchange is not None:
            try:
                return await self._ask_on(exchange, data)
            except BrokenConnectionError:
                if exchange.answer_began or method not in _IDEMPOTENT or self._closed:
                    raise
        return await self._ask_on(await self._connect(), data)

    def close(self) -> None:
        """End all connections, also those in use, for good."""
        self._closed = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for exchange in [*self._open]:
            exchange.abort()
        self._idle.clear()

    async def _ask_on(self, exchange: HttpExchange, data: bytes) -> ApiServerAnswer:
        try:
            answer = await exchange.ask(data)
        except BaseException:
            exchange.abort()
            raise
        if exchange.reusable and not self._closed:
            self._keep(exchange)
        else:
            exchange.abort()
        return answer

    def _take_idle(self) -> HttpExchange | None:
        """The most recently used idle connection, so that the others expire."""
        too_old = asyncio.get_running_loop().time() - _KEPT_S
        while self._idle:
            exchange = self._idle.pop()
            if exchange.reusable and exchange.idle_since > too_old:
                return exchange
            exchange.abort()
        return None

    def _keep(self, exchange: HttpExchange) -> None:
        loop = asyncio.get_running_loop()
        exchange.idle_since = loop.time()
        self._idle.append(exchange)
        if self._expiry_timer is None:
            self._expiry_timer = loop.call_later(_KEPT_S, self._expire_idle)

    def _expire_idle(self) -> None:
        loop = asyncio.get_running_loop()
        too_old = loop.time() - _KEPT_S
        while self._idle and not (self._idle[0].reusable and self._idle[0].idle_since > too_old):
            self._idle.pop(0).abort()
        self._expiry_timer = None
        if self._idle:
            self._expiry_timer = loop.call_at(self._idle[0].idle_since + _KEPT_S, self._expire_idle)

    async def _connect(self) -> HttpExchange:
        """Connect to the first address that accepts. Raises NotConnectedError."""
        try:
            exchange = await self._connect_to_one_of(await self._resolve())
        except OSError as problem:
            raise NotConnectedError(self._host, self._port) from problem
        if self._closed:
            exchange.abort()
            raise NotConnectedError(self._host, self._port)
        self._open.add(exchange)
        return exchange

    async def _connect_to_one_of(self, addresses: list[aiohttp.AddrInfoType]) -> HttpExchange:
        loop = asyncio.get_running_loop()
        tried: dict[socket.socket, aiohttp.AddrInfoType] = {}

        def open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
            opened = self._open_socket(address)
            tried[opened] = address
            return opened

        while True:
            opened = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S, interleave=1, socket_factory=open_socket
            )
            try:
                _, exchange = await loop.create_connection(
                    lambda: HttpExchange(self._open.discard),
                    sock=opened,
                    ssl=self._context,
                    server_hostname=self._server_name,
                )
            except OSError:  # something else listens there: try the next address
                addresses.remove(tried[opened])
                if not addresses:
                    raise
            else:
                return exchange

    async def _resolve(self) -> list[aiohttp.AddrInfoType]:
        """The host's addresses, as a new list."""
        loop = asyncio.get_running_loop()
        async with self._resolving:
            if not self._addresses or loop.time() - self._resolved_at > _ADDRESSES_LAST_S:
                flags = 0 if _is_address(self._host) else socket.AI_ADDRCONFIG
                self._addresses = await loop.getaddrinfo(
                    self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags
                )
                self._resolved_at = loop.time()
        return [*self._addresses]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
