"""Connections on which nobody waits long for a server that does not answer.

A peer that is gone without a word (a machine that died, a network that was cut) is found by the system's own probes,
also on connections that idle. One that is there and does not answer (a server that was stopped, a proxy that
swallows) acknowledges all the same: only a bound on each wait finds it. The first statement of a transaction, which
does nothing, is bounded more closely than those that do the work.
"""

import asyncio
import socket
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import asyncpg

CONNECT_S = 4.0
"""For making a connection, with all that the server asks on the way."""
PROVE_S = 4.0
"""For the beginning of a transaction: it takes a round trip, whatever the transaction is to do."""
STATEMENT_S = 60.0
"""For any other statement where nothing else is said."""
SILENT_S = 4.0
"""A peer that acknowledges nothing for so long is gone."""
_CANCEL_S = 0.5
_CLOSE_S = 1.0
_PROBE_AFTER_S = 1
_PROBES = 3
_FIRST_OTHER_TYPE = 10_000
"""Types below have their number from PostgreSQL's catalogue, which is the same in every database."""
_types: dict[int, Any] = {}
_NOT_ASKED = SimpleNamespace(name="none")


class BoundedConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection of the driver's that ends when its server does not answer within bounds.

    A statement that takes longer than its bound is cancelled and fails with TimeoutError. Where the server does not
    acknowledge that either, the connection ends at once, and `on_silence` is told the loop's time.
    """

    _config: Any

    def __init__(self, protocol: Any, transport: Any, loop: asyncio.AbstractEventLoop, *rest: Any) -> None:
        super().__init__(protocol, transport, loop, *rest)
        self.opened_at = loop.time()
        self.on_silence: Callable[[float], None] | None = None
        _probe_when_idle(transport.get_extra_info("socket"))

    def bound_statements(self, seconds: float) -> None:
        """From now on a statement may take so long."""
        if self._config.command_timeout != seconds:
            self._config = self._config._replace(command_timeout=seconds)

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """As the driver's, but for the statement that begins a transaction: without an answer the connection ends."""
        if timeout is None and query.startswith("BEGIN") and ";" not in query[:-1]:
            return await self._begin(query)
        status: str = await super().execute(query, *args, timeout=timeout)
        return status

    async def _begin(self, query: str) -> str:
        try:
            status: str = await super().execute(query, timeout=min(PROVE_S, self._config.command_timeout or PROVE_S))
        except TimeoutError:
            self._fall_silent()
            raise
        return status

    async def close(self, *, timeout: float | None = None) -> None:
        """Close in order where the server does its part soon; at once where it does not."""
        await super().close(timeout=_CLOSE_S if timeout is None else min(timeout, _CLOSE_S))

    async def _introspect_types(self, typeoids: Collection[int], timeout: float) -> Any:
        """As the driver's; what is known of PostgreSQL's own types is not asked for each connection anew.

        The driver asks for arrays of numbers and of times, which takes the server longer than most statements.
        """
        if all(oid in _types for oid in typeoids):
            return list(_types.values()), _NOT_ASKED
        types, asked = await super()._introspect_types(typeoids, timeout)
        if all(oid < _FIRST_OTHER_TYPE for oid in typeoids):
            _types.update({row["oid"]: row for row in types})
        return types, asked

    def _cancel_current_command(self, sent: "asyncio.Future[None]", done: "asyncio.Future[None]") -> None:
        super()._cancel_current_command(sent, done)
        self._loop.call_later(_CANCEL_S, self._end_unless, done)

    def _end_unless(self, done: "asyncio.Future[None]") -> None:
        if not done.done():
            self._fall_silent()

    def _fall_silent(self) -> None:
        self.terminate()
        if self.on_silence is not None:
            self.on_silence(self._loop.time())


def _probe_when_idle(opened: Any) -> None:
    """Let the system end the connection when its peer is gone, idle or not. What a system lacks is left out."""
    if opened is None or opened.family not in (socket.AF_INET, socket.AF_INET6):
        return
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {
        "TCP_KEEPIDLE": _PROBE_AFTER_S,
        "TCP_KEEPINTVL": _PROBE_AFTER_S,
        "TCP_KEEPCNT": _PROBES,
        "TCP_USER_TIMEOUT": round(SILENT_S * 1000),
    }
    for name, value in wanted.items():
        option = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
