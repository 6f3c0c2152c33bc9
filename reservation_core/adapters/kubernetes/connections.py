"""A client of the API server, with its pool of connections: who closes it leaves no socket open.

A request that is given up, and a connection that was idle for long, end with TLS's farewell, which waits for the other
side's: half a minute, where that is silent. The pool knows nothing of them any more, so we know our sockets ourselves.
"""

import asyncio
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
import structlog
from aiohttp.helpers import get_env_proxy_for_url
from kubernetes.aio.client.api_client import ApiClient
from yarl import URL

from reservation_core.adapters.kubernetes.credentials import Access

_FAREWELL_S = 1.0

_log = structlog.get_logger(__name__)


class Connection:
    """A client with its pool of connections; one that is retired is closed when its last request has ended."""

    def __init__(self, access: Access) -> None:
        configuration = access.configuration
        self.fingerprint = access.fingerprint
        self.host: str = configuration.host
        self.token: str | None = None
        self.client: Any = ApiClient(configuration)
        self.users = 0
        self.waits: set[asyncio.Timeout] = set()
        """The limits of those who wait for an answer's head."""
        self.retired = False
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        # Streams come and go; who calls bounds the rest.
        context = self.client.rest_client.ssl_context
        self._pool = aiohttp.TCPConnector(limit=0, ssl=context, socket_factory=self._open)
        configuration.client_session_kwargs = {**_session_rules(configuration), "connector": self._pool}

    async def leave(self) -> None:
        """One of its users has what it wanted."""
        self.users -= 1
        await self.close_if_unused()

    async def close_if_unused(self) -> None:
        """Close it where it is retired and nobody uses it any more."""
        if self.retired and self.users == 0:
            await self.close()

    async def close(self) -> None:
        """Close all of its connections; returns when their sockets are closed, and at the latest after some seconds.

        Who waits for an answer is not kept waiting, and its session is closed with its pool.
        """
        for limit in self.waits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        await self._pool.close()
        # A socket that somebody is still connecting must be let alone: it has no owner yet who would learn of its end.
        if await _soon(lambda: not self.waits):
            for each in self._open_sockets():
                with suppress(OSError):  # the other side has closed it already
                    each.shutdown(socket.SHUT_RDWR)
        if not await _soon(lambda: not self._open_sockets()):
            _log.warning("connections are slow to close", server=self.host, connections=len(self._open_sockets()))

    def _open(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        self._sockets.add(opened)
        return opened

    def _open_sockets(self) -> list[socket.socket]:
        return [each for each in self._sockets if each.fileno() >= 0]


async def _soon(is_so: Callable[[], bool]) -> bool:
    """Whether it comes to be so while we wait: nobody tells when a socket is closed."""
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + _FAREWELL_S
    while not (so := is_so()) and clock() < give_up_at:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return so


def _session_rules(configuration: Any) -> dict[str, Any]:
    """What the client would look up anew, in a thread, for every request: the environment's proxy for this server.

    Nobody's .netrc is looked at for the server itself, as kubectl does not either.
    """
    if configuration.proxy:
        return {"trust_env": False}
    try:
        proxy, login = get_env_proxy_for_url(URL(configuration.host))
    except LookupError:
        return {"trust_env": False}
    if login is not None:
        proxy = proxy.with_user(login.login).with_password(login.password)
    return {"trust_env": False, "proxy": proxy}
