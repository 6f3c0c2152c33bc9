"""Wake-ups: a NOTIFY on a connection of its own, after commit, many folded into one.

A NOTIFY inside the transaction would serialise all commits, and PGMQ's own trigger locks one row per queue. Here the
committing process only marks a channel; one task sends what is marked. Listeners in the same process are woken at once.
A lost wake-up costs a sweep's time, nothing else: the caller begins this again when its connection breaks. A connection
that is dead without a word is found by asking the server something every few seconds.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import asyncpg

from reservation_core.adapters.postgres.connection.driver_errors import map_to_unavailable
from reservation_core.adapters.postgres.connection.engine import open_connection
from reservation_core.ports.wakeups import Channel

_REST_S = 0.004
_BEAT_S = 5.0
_ANSWER_S = 5.0
"""A connection that does not answer for this long is lost."""
_NOTIFY = "SELECT pg_notify(channel, '') FROM unnest($1::text[]) AS marked (channel)"


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

    async def run(self, listening: Callable[[], None] = lambda: None) -> None:
        """Send what is marked and receive what others send, on one connection, until cancelled.

        `listening` is called once others are heard. Raises DatabaseUnavailableError when the connection can't be had
        or is lost.
        """
        with map_to_unavailable() as reached:
            connection = await open_connection(self._url, self._application)
            reached.connected = True
            try:
                lost = asyncio.Event()
                async with asyncio.timeout(_ANSWER_S):
                    await self._listen(connection, lost)
                listening()
                while not lost.is_set():
                    await self._send_marked(connection)
            finally:
                connection.terminate()
            raise ConnectionError("the server closed the connection")

    async def _listen(self, connection: asyncpg.Connection, lost: asyncio.Event) -> None:
        self._backend_pid = connection.get_server_pid()

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
        # And what could not be sent before is sent now.
        self._something_marked.set()

    async def _send_marked(self, connection: asyncpg.Connection) -> None:
        """Send what is marked next; nothing when nothing is for a while, to see whether the connection still stands."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BEAT_S):
                await self._something_marked.wait()
        self._something_marked.clear()
        marked, self._marked = self._marked, set()
        try:
            await connection.fetch(_NOTIFY, [channel.value for channel in marked], timeout=_ANSWER_S)
        except BaseException:
            self._marked |= marked
            raise
        # Under load everything that is marked in the next moments shares one statement.
        await asyncio.sleep(_REST_S)

    def _listener(self, channel: Channel) -> Callable[[object, int, str, object], None]:
        def received(_connection: object, pid: int, _channel: str, _payload: object) -> None:
            if pid != self._backend_pid:
                for subscription in self._subscriptions[channel]:
                    subscription.wake()

        return received
