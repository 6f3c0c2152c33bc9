"""Connections to allowed addresses only, for notifications.

A name is resolved once per connection, all its addresses are checked, and the connection uses one of them, so a later
change of the name has no effect. Proxies of the environment, Unix sockets and redirects are not used.
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
    """Resolve a host with the system's resolver."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in infos))


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """httpcore's network behind the egress rules. `tls`: whether the connection will use TLS."""

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
        """Connect to an address of `host`, if all its addresses are allowed.

        The reason of a refusal is logged only: the target's owner must not learn more than for a missing host.
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
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait, as httpcore requires for its retries."""
        await self._network.sleep(seconds)
