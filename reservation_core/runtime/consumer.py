"""The consumer loop: read a batch, commit, then handle each message in a transaction of its own, several at once.

Delivery is at least once. A message that fails is tried again after a growing pause; after `max_reads` tries it moves,
with its error, to the dead letters. Trouble of the database or the cluster is nobody's fault: it buries nothing, and
brings no message nearer to that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.ports.transactions import DatabaseUnavailableError, UnitOfWork, UnitOfWorkFactory
from reservation_core.ports.wakeups import Channel, Subscription, Wakeups
from reservation_core.runtime.pacing import TokenBucket

_log = structlog.get_logger(__name__)

Handler = Callable[[UnitOfWork, QueuedMessage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConsumerRules:
    """How a queue is consumed."""

    parallel: int
    visibility: timedelta
    max_reads: int
    sweep: timedelta


class Consumer:
    """Consumes one queue until told to stop; what is under way then is finished."""

    def __init__(
        self,
        uow_factory: UnitOfWorkFactory,
        queue: QueueName,
        handle: Handler,
        rules: ConsumerRules,
        pace: TokenBucket,
    ) -> None:
        self._uow = uow_factory
        self._queue = queue
        self._handle = handle
        self._rules = rules
        self._pace = pace
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, wakeups: Wakeups, channel: Channel, stop: asyncio.Event) -> None:
        """Consume until `stop`. An error that is not a message's own travels up."""
        async with wakeups.subscribe(channel) as subscription, asyncio.TaskGroup() as group:
            while not stop.is_set():
                if not await self._fill(group):
                    await self._idle(subscription, stop)

    async def _fill(self, group: asyncio.TaskGroup) -> bool:
        """Start what there is room for; false when the queue had nothing."""
        room = self._rules.parallel - len(self._running)
        if room <= 0:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            return True
        try:
            async with self._uow() as uow:
                messages = await uow.queue.read(self._queue, visibility=self._rules.visibility, limit=room)
        except DatabaseUnavailableError as error:
            _log.warning("the database is not available; trying again", queue=self._queue.value, error=str(error))
            return False
        for message in messages:
            await self._pace.take()
            task = group.create_task(self._handle_one(message))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return bool(messages)

    async def _idle(self, subscription: Subscription, stop: asyncio.Event) -> None:
        waiting = asyncio.ensure_future(subscription.wait(self._rules.sweep))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()

    async def _handle_one(self, message: QueuedMessage) -> None:
        try:
            async with self._uow() as uow:
                await self._handle(uow, message)
                await uow.queue.delete(self._queue, [message.id])
        except (DatabaseUnavailableError, ClusterUnavailableError) as error:
            # It becomes visible again by itself, as if this had not been tried.
            _log.warning("not now", queue=self._queue.value, message=message.id, error=str(error))
            await self._take_back(message)
        except Exception as error:  # noqa: BLE001 - it is logged and kept with the message
            _log.exception("a message could not be handled", queue=self._queue.value, message=message.id)
            await self._set_aside(message, error)

    async def _take_back(self, message: QueuedMessage) -> None:
        try:
            async with self._uow() as uow:
                await uow.queue.unread(self._queue, [message.id])
        except DatabaseUnavailableError as unavailable:
            _log.warning("not taken back now", queue=self._queue.value, message=message.id, error=str(unavailable))

    async def _set_aside(self, message: QueuedMessage, error: Exception) -> None:
        try:
            async with self._uow() as uow:
                if message.read_count >= self._rules.max_reads:
                    await uow.queue.bury(self._queue, message, f"{type(error).__name__}: {error}")
                else:
                    pause = timedelta(seconds=min(60, 2 ** (message.read_count - 1)))
                    await uow.queue.postpone(self._queue, [message.id], pause)
        except DatabaseUnavailableError as unavailable:
            _log.warning("not set aside now", queue=self._queue.value, message=message.id, error=str(unavailable))
