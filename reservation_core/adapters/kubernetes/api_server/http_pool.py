"""Kept HTTP/1.1 connections to one API server, opened as they are needed: see http_exchange.py for why they are ours.

What was sent on a connection that the server ended meanwhile is asked again at once, on a new one, where the method
says that this does no harm; whoever asks decides about all else.
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
_ASKED_AGAIN = frozenset({"GET", "PUT", "DELETE"})

OpenSocket = Callable[[aiohttp.AddrInfoType], socket.socket]


class NotConnectedError(ConnectionError):
    """There is no connection: nothing was sent."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"no connection to {host}:{port}")
        self.host = host
        self.port = port


class HttpPool:
    """Connections to one server, over TLS with a `context`. `open_socket` makes every socket.

    No number limits them, as whoever asks bounds what is asked at once. `server_name` is the one in the server's
    certificate, where it is not the host's.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        server_name: str | None,
        open_socket: OpenSocket,
    ) -> None:
        self._host, self._port = host, port
        self._context = context
        self._server_name = None if context is None else (server_name or host.rstrip("."))
        self._open_socket = open_socket
        self._idle: list[HttpExchange] = []
        self._open: set[HttpExchange] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._resolving = asyncio.Lock()
        self._addresses: Sequence[aiohttp.AddrInfoType] = ()
        self._resolved_at = 0.0
        self._closed = False

    async def ask(self, method: str, data: bytes) -> ApiServerAnswer:
        """Send `data`, a whole request of that method, and wait for its answer, for as long as whoever asks does.

        Raises NotConnectedError where nothing was sent that does harm twice, and BrokenConnectionError where it may
        have been carried out.
        """
        exchange = self._kept()
        if exchange is not None:
            try:
                return await self._asked(exchange, data)
            except BrokenConnectionError:
                if exchange.answer_began or method not in _ASKED_AGAIN or self._closed:
                    raise
        return await self._asked(await self._connect(), data)

    def close(self) -> None:
        """End all connections, those in use as well; none is opened any more."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        for exchange in [*self._open]:
            exchange.abort()
        self._idle.clear()

    async def _asked(self, exchange: HttpExchange, data: bytes) -> ApiServerAnswer:
        try:
            answer = await exchange.ask(data)
        except BaseException:
            exchange.abort()
            raise
        if exchange.reusable and not self._closed:
            self._put_by(exchange)
        else:
            exchange.abort()
        return answer

    def _kept(self) -> HttpExchange | None:
        """The connection that was used last, for the others to grow old; none where none is left."""
        too_old = asyncio.get_running_loop().time() - _KEPT_S
        while self._idle:
            exchange = self._idle.pop()
            if exchange.reusable and exchange.idle_since > too_old:
                return exchange
            exchange.abort()
        return None

    def _put_by(self, exchange: HttpExchange) -> None:
        loop = asyncio.get_running_loop()
        exchange.idle_since = loop.time()
        self._idle.append(exchange)
        if self._looking is None:
            self._looking = loop.call_later(_KEPT_S, self._end_the_old)

    def _end_the_old(self) -> None:
        loop = asyncio.get_running_loop()
        too_old = loop.time() - _KEPT_S
        while self._idle and not (self._idle[0].reusable and self._idle[0].idle_since > too_old):
            self._idle.pop(0).abort()
        self._looking = None
        if self._idle:
            self._looking = loop.call_at(self._idle[0].idle_since + _KEPT_S, self._end_the_old)

    async def _connect(self) -> HttpExchange:
        """A new connection: to the first address that lets us in. Raises NotConnectedError."""
        try:
            exchange = await self._connect_to_one_of(await self._resolved())
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
                addresses,
                happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S,
                interleave=1,
                socket_factory=open_socket,
            )
            try:
                _, exchange = await loop.create_connection(
                    lambda: HttpExchange(self._open.discard),
                    sock=opened,
                    ssl=self._context,
                    server_hostname=self._server_name,
                )
            except OSError:  # whoever takes connections there is perhaps not the server, and another one is
                addresses.remove(tried[opened])
                if not addresses:
                    raise
            else:
                return exchange

    async def _resolved(self) -> list[aiohttp.AddrInfoType]:
        """The host's addresses, a list of the caller's own."""
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
