"""Messages that a process has taken from a queue: hidden while it is about them, forgotten when they were handled.

What takes longer than a message's visibility (a slow cluster, a queue of other work before it) would be taken by
another process meanwhile and be done twice at once. That is harmless, but it doubles the load on what is slow already.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog

from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.ports.transactions import DatabaseUnavailableError, UnitOfWorkFactory

_log = structlog.get_logger(__name__)
_BEATS = 3  # in the time that a message is hidden: two may fail
_AGAIN_S = 0.5


class MessagesInHand:
    """One queue's. What the database can't do now is logged; then messages come again, as if nothing had happened."""

    def __init__(self, uow_factory: UnitOfWorkFactory, queue: QueueName, visibility: timedelta) -> None:
        self._uow = uow_factory
        self._queue = queue
        self._visibility = max(visibility, timedelta(seconds=1))
        self._hidden_at: dict[int, float] = {}
        self._handled: list[int] = []
        self._some_handled = asyncio.Event()

    async def take(self, limit: int) -> list[QueuedMessage]:
        """Up to `limit` messages. Raises DatabaseUnavailableError."""
        at = asyncio.get_running_loop().time()
        async with self._uow(one_statement=True) as uow:
            messages = await uow.queue.read(self._queue, visibility=self._visibility, limit=limit)
        self._hidden_at |= dict.fromkeys((message.id for message in messages), at)
        return messages

    def handled(self, ids: Iterable[int]) -> None:
        """Forget these, many at a time and soon: until that has happened they may come once more."""
        self._handled += ids
        if self._handled:
            self._some_handled.set()

    async def give_back(self, message: QueuedMessage, after: timedelta | None = None) -> None:
        """As if it had not been taken: again `after` so long, or else when it becomes visible by itself."""
        self._hidden_at.pop(message.id, None)
        try:
            async with self._uow() as uow:
                await uow.queue.unread(self._queue, [message.id])
                if after is not None:
                    await uow.queue.postpone(self._queue, [message.id], max(after, timedelta(seconds=1)))
        except DatabaseUnavailableError as error:
            _log.warning("not given back now", queue=self._queue.value, message=message.id, error=str(error))

    async def put_off(self, message: QueuedMessage, pause: timedelta) -> None:
        """Again after a pause."""
        self._hidden_at.pop(message.id, None)
        try:
            async with self._uow() as uow:
                await uow.queue.postpone(self._queue, [message.id], pause)
        except DatabaseUnavailableError as error:
            _log.warning("not put off now", queue=self._queue.value, message=message.id, error=str(error))

    async def bury(self, message: QueuedMessage, error: str) -> None:
        """To the dead letters, with its error."""
        self._hidden_at.pop(message.id, None)
        try:
            async with self._uow() as uow:
                await uow.queue.bury(self._queue, message, error)
        except DatabaseUnavailableError as unavailable:
            _log.warning("not buried now", queue=self._queue.value, message=message.id, error=str(unavailable))

    @asynccontextmanager
    async def cared_for(self) -> AsyncIterator[None]:
        """While the block runs, messages in hand stay hidden and handled ones are forgotten; at its end, the last."""
        tasks = [asyncio.create_task(self._keep_hidden()), asyncio.create_task(self._forget())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome
            await self._forget_handled()

    async def _keep_hidden(self) -> None:
        clock = asyncio.get_running_loop().time
        beat = self._visibility.total_seconds() / _BEATS
        while True:
            await asyncio.sleep(beat)
            now = clock()
            due = [each for each, at in self._hidden_at.items() if now - at >= beat]
            if not due:
                continue
            try:
                async with self._uow(one_statement=True) as uow:
                    await uow.queue.postpone(self._queue, due, self._visibility)
            except DatabaseUnavailableError as error:
                _log.warning("not kept hidden now", queue=self._queue.value, messages=len(due), error=str(error))
            else:
                self._hidden_at |= {each: now for each in due if each in self._hidden_at}

    async def _forget(self) -> None:
        while True:
            await self._some_handled.wait()
            if not await self._forget_handled():
                await asyncio.sleep(_AGAIN_S)

    async def _forget_handled(self) -> bool:
        """Delete what was handled; false when that can't be done now."""
        self._some_handled.clear()
        ids, self._handled = self._handled, []
        if not ids:
            return True
        try:
            async with self._uow(one_statement=True) as uow:
                await uow.queue.delete(self._queue, ids)
        except BaseException as error:
            self._handled += ids
            self._some_handled.set()
            if not isinstance(error, DatabaseUnavailableError):
                raise
            _log.warning("not forgotten now", queue=self._queue.value, messages=len(ids), error=str(error))
            return False
        for each in ids:
            self._hidden_at.pop(each, None)
        return True
