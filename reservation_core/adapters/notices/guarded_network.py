"""Connections that are made only where notices may go, and to the very address that was checked.

A name is resolved once for each connection, every address it has is checked, and the connection goes to one of those
addresses: a name that resolves differently a moment later changes nothing. Nothing else is reached: no proxy of the
environment, no Unix socket, no redirect.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import httpcore
import structlog

from reservation_core.domain.network.egress import EgressRules, refused

_log = structlog.get_logger(__name__)

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Addresses of a host, as text. Raises OSError."""


async def resolve(host: str, port: int) -> list[str]:
    """What the system's resolver says."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """httpcore's network with rules in front of it. `tls_only`: whether this connection will speak TLS."""

    def __init__(self, rules: EgressRules, *, tls: bool, resolve: Resolve = resolve) -> None:
        self._rules = rules
        self._tls = tls
        self._resolve = resolve
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to an address of `host`, if all its addresses may be reached.

        Why it may not is for the operator's log: the owner of a target learns as little as of a host that is not there.
        """
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} can't be resolved") from error
        for address in addresses:
            why = refused(self._rules, host=host, address=address, tls=self._tls)
            if why is not None:
                _log.info("notice_not_let_out", reason=why)
                raise httpcore.ConnectError("not let out")
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed

    async def sleep(self, seconds: float) -> None:
        """Wait, as httpcore does between retries."""
        await self._network.sleep(seconds)
