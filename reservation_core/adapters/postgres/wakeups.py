"""Wake-ups: a NOTIFY on a connection of its own, after commit, many folded into one.

A NOTIFY inside the transaction would serialise all commits, and PGMQ's own trigger locks one row per queue. Here the
committing process only marks a channel; one task sends what is marked. Listeners in the same process are woken at once.
A lost wake-up costs a sweep's time, nothing else, so a broken connection is reopened without ado.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import structlog

from reservation_core.adapters.postgres.engine import open_connection
from reservation_core.ports.wakeups import Channel

_log = structlog.get_logger(__name__)
_RECONNECT_S = 0.5
_REST_S = 0.004
_NOTIFY = "SELECT pg_notify(channel, '') FROM unnest($1::text[]) AS marked (channel)"
# InternalClientError: the driver lost its connection in the middle of something and no longer knows where it is.
_CONNECTION_ERRORS = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    TimeoutError,
)


class ChannelSubscription:
    """See ports.wakeups.Subscription."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Remember a wake-up for whoever waits, now or next."""
        self._woken.set()

    async def wait(self, timeout: timedelta) -> bool:
        """True when woken, false when the time ran out."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class PostgresWakeups:
    """Sends and receives wake-ups for one process; `run` must be running for those from other processes."""

    def __init__(self, url: str, application: str) -> None:
        self._url = url
        self._application = f"{application} wake-ups"
        self._subscriptions: dict[Channel, list[ChannelSubscription]] = {channel: [] for channel in Channel}
        self._marked: set[Channel] = set()
        self._something_marked = asyncio.Event()
        self._backend_pid = 0

    def wake(self, channel: Channel) -> None:
        """Wake everybody who listens to a channel, in every process."""
        for subscription in self._subscriptions[channel]:
            subscription.wake()
        self._marked.add(channel)
        self._something_marked.set()

    @asynccontextmanager
    async def subscribe(self, channel: Channel) -> AsyncIterator[ChannelSubscription]:
        """Listen while the block runs."""
        subscription = ChannelSubscription()
        self._subscriptions[channel].append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[channel].remove(subscription)

    async def run(self) -> None:
        """Send what is marked and receive what others send, until cancelled."""
        while True:
            try:
                await self._run_connected()
            except _CONNECTION_ERRORS as error:
                _log.warning("wake-ups are interrupted; sweeps go on", error=type(error).__name__)
                await asyncio.sleep(_RECONNECT_S)

    async def _run_connected(self) -> None:
        connection = await open_connection(self._url, self._application)
        try:
            self._backend_pid = connection.get_server_pid()
            lost = asyncio.Event()

            def closed(_connection: object) -> None:
                lost.set()
                self._something_marked.set()

            connection.add_termination_listener(closed)
            for channel in Channel:
                await connection.add_listener(channel.value, self._listener(channel))
            # Whatever came while nobody listened is found by looking once.
            for subscriptions in self._subscriptions.values():
                for subscription in subscriptions:
                    subscription.wake()
            while True:
                await self._something_marked.wait()
                self._something_marked.clear()
                if lost.is_set():
                    break
                marked, self._marked = self._marked, set()
                await connection.fetch(_NOTIFY, [channel.value for channel in marked])
                # Under load everything that is marked in the next moments shares one statement.
                await asyncio.sleep(_REST_S)
        finally:
            connection.terminate()
        raise ConnectionError("the server closed the connection")

    def _listener(self, channel: Channel) -> Callable[[object, int, str, object], None]:
        def received(_connection: object, pid: int, _channel: str, _payload: object) -> None:
            if pid != self._backend_pid:
                for subscription in self._subscriptions[channel]:
                    subscription.wake()

        return received
