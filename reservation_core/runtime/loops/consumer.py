"""The consumer loop: read a batch, commit, then handle each message, several at once.

What a handler does is its own to make whole, in as many transactions as it takes, and right to do twice: delivery is at
least once. While a message is being handled it is kept hidden, however long that takes. One that fails is tried again
after a growing pause; after `max_reads` tries it moves, with its error, to the dead letters. Trouble of the database or
the cluster is nobody's fault: it buries nothing, and brings no message nearer to that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.queues import HopelessError, NotYetError, QueuedMessage, QueueName, TryAgainError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Channel, Subscription, Wakeups
from reservation_core.runtime.loops.loops import Loops
from reservation_core.runtime.loops.messages_in_hand import MessagesInHand
from reservation_core.runtime.loops.token_bucket import TokenBucket

_log = structlog.get_logger(__name__)
_GROUPS = 4  # while some wait for what they do, others are read and committed
_NEXT_GROUPS = 1  # read before there is room for it, so that nothing waits for reading between one and the next

Handler = Callable[[QueuedMessage], Awaitable[None]]
TogetherHandler = Callable[[Sequence[QueuedMessage]], Awaitable[Sequence[QueuedMessage]]]
"""Handles those of many messages that it can at once, and answers which; the rest is handled one by one."""


@dataclass(frozen=True, slots=True)
class ConsumerRules:
    """How a queue is consumed. `parallel` messages are handled at once, each by itself.

    Where many can be handled together, four groups of up to `together` messages are tried before that. A message is
    hidden for `visibility` at a time: so much later another process takes it when this one dies.
    """

    parallel: int
    visibility: timedelta
    max_reads: int
    sweep: timedelta
    together: int = 32


class Consumer:
    """Consumes one queue until told to stop; what is under way then is finished."""

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
        self._running: dict[asyncio.Task[None], int] = {}  # with how many messages each is about
        self._turns = asyncio.Semaphore(rules.parallel)  # each turn holds a connection
        self._groups = asyncio.Semaphore(_GROUPS)  # and so does each group, however few its messages are
        loops = Loops() if loops is None else loops
        self._loop = loops[queue.value]
        self._messages = MessagesInHand(uow_factory, queue, rules.visibility, loops)

    async def run(self, wakeups: Wakeups, channel: Channel, stop: asyncio.Event) -> None:
        """Consume until `stop`."""
        async with wakeups.subscribe(channel) as subscription, self._messages.cared_for(), asyncio.TaskGroup() as group:

            async def once() -> None:
                if not await self._fill(group):
                    self._loop.went_well()
                    await self._idle(subscription, stop)

            await self._loop.repeat(once, stop=stop)

    async def _fill(self, group: asyncio.TaskGroup) -> bool:
        """Start what there is room for; false when the queue had nothing."""
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
            # Never all in one: while some are under way, the next are read.
            for first in range(0, len(messages), self._rules.together):
                some = messages[first : first + self._rules.together]
                await self._pace.take(len(some))
                self._start(group, self._handle_some(group, some, self._together), len(some))
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

    async def _handle_some(
        self, group: asyncio.TaskGroup, messages: Sequence[QueuedMessage], together: TogetherHandler
    ) -> None:
        done: set[int] = set()
        if len(messages) > 1:
            try:
                async with self._groups:
                    done = {message.id for message in await together(messages)}
            except (DatabaseUnavailableError, ClusterUnavailableError) as error:
                _log.warning("a batch is postponed", queue=self._queue.value, error=str(error))
            except Exception:  # noqa: BLE001 - it is logged; which message is to blame shows when each is by itself
                _log.exception("a batch of messages failed", queue=self._queue.value)
        self._messages.handled(done)
        self._start_each(group, (message for message in messages if message.id not in done))

    async def _handle_one(self, message: QueuedMessage) -> None:
        try:
            async with self._turns:
                await self._handle(message)
        except (DatabaseUnavailableError, ClusterUnavailableError) as error:
            # It becomes visible again by itself, as if this had not been tried.
            _log.warning("a message is postponed", queue=self._queue.value, message=message.id, error=str(error))
            await self._messages.give_back(message)
        except NotYetError as reason:
            _log.info("a message is not due yet", queue=self._queue.value, message=message.id, reason=str(reason))
            await self._messages.give_back(message, reason.after)
        except HopelessError as error:
            _log.warning("a message is buried", queue=self._queue.value, message=message.id, reason=str(error))
            await self._messages.bury(message, str(error))
        except TryAgainError as error:
            _log.warning(
                "a message failed; trying again", queue=self._queue.value, message=message.id, reason=str(error)
            )
            await self._set_aside(message, str(error), error.after)
        except Exception as error:  # noqa: BLE001 - it is logged and kept with the message
            _log.exception("a message's handler crashed; trying again", queue=self._queue.value, message=message.id)
            pause = timedelta(seconds=min(60, 2 ** (message.read_count - 1)))
            await self._set_aside(message, f"{type(error).__name__}: {error}", pause)
        else:
            self._messages.handled([message.id])

    async def _set_aside(self, message: QueuedMessage, error: str, pause: timedelta) -> None:
        if message.read_count >= self._rules.max_reads:
            await self._messages.bury(message, error)
        else:
            await self._messages.put_off(message, pause)
