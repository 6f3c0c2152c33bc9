"""The consumer loop: read a batch, commit, then handle its messages, several at once.

Delivery is at least once, so handlers must be idempotent; they use as many transactions as they need. A message stays
hidden while it is handled. A failed message is retried after a growing pause; after `max_reads` attempts it moves, with
its error, to the dead letters. Failures of the database or the cluster do not count as attempts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.queues import (
    MessageNotDueError,
    QueuedMessage,
    QueueName,
    RetryLaterError,
    UnrecoverableMessageError,
)
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Channel, Subscription, Wakeups
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.loops.messages_in_hand import MessagesInHand
from reservation_core.runtime.loops.token_bucket import TokenBucket

_log = structlog.get_logger(__name__)
_GROUPS = 4  # while some wait, others are read and committed
_NEXT_GROUPS = 1  # read in advance, so that a finished group is replaced at once

Handler = Callable[[QueuedMessage], Awaitable[None]]
TogetherHandler = Callable[[Sequence[QueuedMessage]], Awaitable[Sequence[QueuedMessage]]]
"""Handles many messages together and returns the handled ones; the rest is handled one by one."""


@dataclass(frozen=True, slots=True)
class ConsumerRules:
    """How a queue is consumed. `parallel` messages are handled at once, one by one.

    With a handler for groups, four groups of up to `together` messages come first. A message is hidden for `visibility`
    at a time: that is how late another process takes it over when this one dies.
    """

    parallel: int
    visibility: timedelta
    max_reads: int
    sweep: timedelta
    together: int = 64


class Consumer:
    """Consumes one queue until stopped; pending messages are then finished."""

    def __init__(
        self,
        uow_factory: UnitOfWorkFactory,
        queue: QueueName,
        handle: Handler,
        rules: ConsumerRules,
        pace: TokenBucket,
        together: TogetherHandler | None = None,
        loops: Loops | None = None,
    ) -> None:
        self._uow = uow_factory
        self._queue = queue
        self._handle = handle
        self._rules = rules
        self._pace = pace
        self._together = together
        self._running: dict[asyncio.Task[None], int] = {}  # with their numbers of messages
        self._turns = asyncio.Semaphore(rules.parallel)  # a turn holds a database connection
        self._groups = asyncio.Semaphore(_GROUPS)  # and so does a group
        loops = Loops() if loops is None else loops
        self._loop = loops[queue.value]
        self._messages = MessagesInHand(uow_factory, queue, rules.visibility, loops)

    async def run(self, wakeups: Wakeups, channel: Channel, stop: asyncio.Event) -> None:
        async with (
            wakeups.subscribe(channel) as subscription,
            self._messages.keep_hidden(),
            asyncio.TaskGroup() as group,
        ):

            async def once() -> None:
                if not await self._fill(group):
                    self._loop.note_success()
                    await self._idle(subscription, stop)

            await self._loop.repeat(once, stop=stop)

    async def _fill(self, group: asyncio.TaskGroup) -> bool:
        """Start as many messages as there is room for; false when the queue was empty."""
        most = self._rules.parallel if self._together is None else (_GROUPS + _NEXT_GROUPS) * self._rules.together
        room = most - sum(self._running.values())
        if room <= 0:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            return True
        messages = await self._messages.take(room)
        if self._together is None:
            for message in messages:
                await self._pace.take()
                self._start_each(group, [message])
        else:
            # In several groups, so that the next ones are read while some are pending.
            for first in range(0, len(messages), self._rules.together):
                batch = messages[first : first + self._rules.together]
                await self._pace.take(len(batch))
                self._start(group, self._handle_batch(group, batch, self._together), len(batch))
        return bool(messages)

    def _start_each(self, group: asyncio.TaskGroup, messages: Iterable[QueuedMessage]) -> None:
        for message in messages:
            self._start(group, self._handle_one(message), 1)

    def _start(self, group: asyncio.TaskGroup, work: Coroutine[None, None, None], messages: int) -> None:
        task = group.create_task(work)
        self._running[task] = messages
        task.add_done_callback(self._running.pop)

    async def _idle(self, subscription: Subscription, stop: asyncio.Event) -> None:
        waiting = asyncio.ensure_future(subscription.wait(self._rules.sweep))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()

    async def _handle_batch(
        self, group: asyncio.TaskGroup, messages: Sequence[QueuedMessage], together: TogetherHandler
    ) -> None:
        done: set[int] = set()
        if len(messages) > 1:
            try:
                async with self._groups:
                    done = {message.id for message in await together(messages)}
            except (DatabaseUnavailableError, ClusterUnavailableError) as error:
                _log.warning("a batch is postponed", queue=self._queue.value, error=str(error))
            except Exception:  # noqa: BLE001 - logged; the faulty message shows when they are handled one by one
                _log.exception("a batch of messages failed", queue=self._queue.value)
        self._messages.handled(done)
        self._start_each(group, (message for message in messages if message.id not in done))

    async def _handle_one(self, message: QueuedMessage) -> None:
        try:
            async with self._turns:
                await self._handle(message)
        except (DatabaseUnavailableError, ClusterUnavailableError) as error:
            # It becomes visible again by itself, without counting the attempt.
            _log.warning("a message is postponed", queue=self._queue.value, message=message.id, error=str(error))
            await self._messages.give_back(message)
        except MessageNotDueError as reason:
            _log.info("a message is not due yet", queue=self._queue.value, message=message.id, reason=str(reason))
            await self._messages.give_back(message, reason.after)
        except UnrecoverableMessageError as error:
            _log.warning("a message is buried", queue=self._queue.value, message=message.id, reason=str(error))
            await self._messages.bury(message, str(error))
        except RetryLaterError as error:
            _log.warning(
                "a message failed; trying again", queue=self._queue.value, message=message.id, reason=str(error)
            )
            await self._retry_or_bury(message, str(error), error.after)
        except Exception as error:  # noqa: BLE001 - logged, and kept with the message
            _log.exception("a message's handler crashed; trying again", queue=self._queue.value, message=message.id)
            pause = timedelta(seconds=min(60, 2 ** (message.read_count - 1)))
            await self._retry_or_bury(message, f"{type(error).__name__}: {error}", pause)
        else:
            self._messages.handled([message.id])

    async def _retry_or_bury(self, message: QueuedMessage, error: str, pause: timedelta) -> None:
        if message.read_count >= self._rules.max_reads:
            await self._messages.bury(message, error)
        else:
            await self._messages.put_off(message, pause)
