"""Messages that a process has taken from a queue: kept hidden while they are handled, deleted afterwards.

A message that takes longer than its visibility would be taken by another process, too. That is harmless, but doubles
the load on a slow system.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.loops import Loops

_log = structlog.get_logger(__name__)
_BEATS = 3  # per visibility, so that two may fail


class MessagesInHand:
    """The messages of one queue. Failed changes are logged; the messages then become visible again."""

    def __init__(self, uow_factory: UnitOfWorkFactory, queue: QueueName, visibility: timedelta, loops: Loops) -> None:
        self._uow = uow_factory
        self._queue = queue
        self._visibility = max(visibility, timedelta(seconds=1))
        self._hidden_at: dict[int, float] = {}
        self._handled: list[int] = []
        self._some_handled = asyncio.Event()
        self._hiding = loops[f"{queue.value}_hidden"]
        self._forgetting = loops[f"{queue.value}_forgotten"]

    async def take(self, limit: int) -> list[QueuedMessage]:
        """Take up to `limit` messages. Raises DatabaseUnavailableError."""
        at = asyncio.get_running_loop().time()
        async with self._uow(one_statement=True) as uow:
            messages = await uow.queue.read(self._queue, visibility=self._visibility, limit=limit)
        self._hidden_at |= dict.fromkeys((message.id for message in messages), at)
        return messages

    def handled(self, ids: Iterable[int]) -> None:
        """Queue handled messages for deletion in batches; until then they may be delivered again."""
        self._handled += ids
        if self._handled:
            self._some_handled.set()

    async def give_back(self, message: QueuedMessage, after: timedelta | None = None) -> None:
        """Undo the read; the message comes again `after` a time, or else when it becomes visible by itself."""

        async def unread(uow: UnitOfWork) -> None:
            await uow.queue.unread(self._queue, [message.id])
            if after is not None:
                await uow.queue.postpone(self._queue, [message.id], max(after, timedelta(seconds=1)))

        await self._change(message, "given back", unread)

    async def put_off(self, message: QueuedMessage, pause: timedelta) -> None:
        await self._change(message, "postponed", lambda uow: uow.queue.postpone(self._queue, [message.id], pause))

    async def bury(self, message: QueuedMessage, error: str) -> None:
        """Move a message with its error to the dead letters."""
        await self._change(message, "buried", lambda uow: uow.queue.bury(self._queue, message, error))

    async def _change(self, message: QueuedMessage, how: str, act: Callable[[UnitOfWork], Awaitable[object]]) -> None:
        """Change a message in the queue; after any failure it becomes visible again by itself."""
        self._hidden_at.pop(message.id, None)
        try:
            async with self._uow() as uow:
                await act(uow)
        except DatabaseUnavailableError as error:
            _log.warning(
                f"a message could not be {how} now", queue=self._queue.value, message=message.id, error=str(error)
            )
        except Exception:  # noqa: BLE001 - logged; other messages are not affected
            _log.exception(f"a message could not be {how}", queue=self._queue.value, message=message.id)

    @asynccontextmanager
    async def keep_hidden(self) -> AsyncIterator[None]:
        """Keep messages in hand hidden and delete handled ones during the block; delete the last at its end."""
        beat_s = self._visibility.total_seconds() / _BEATS
        hiding = self._hiding.repeat(
            lambda: self._keep_hidden(beat_s), rest_s=beat_s, rests_first=True, longest_s=beat_s
        )
        tasks = [asyncio.create_task(hiding), asyncio.create_task(self._forgetting.repeat(self._forget))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            try:
                await self._forget_handled()
            except Exception as error:  # noqa: BLE001 - they are delivered again, which is harmless
                _log.warning(
                    "handled messages were not deleted at the end", queue=self._queue.value, error=type(error).__name__
                )

    async def _keep_hidden(self, beat_s: float) -> None:
        now = asyncio.get_running_loop().time()
        due = [message_id for message_id, at in self._hidden_at.items() if now - at >= beat_s]
        if not due:
            return
        async with self._uow(one_statement=True) as uow:
            await uow.queue.postpone(self._queue, due, self._visibility)
        self._hidden_at |= {message_id: now for message_id in due if message_id in self._hidden_at}

    async def _forget(self) -> None:
        await self._some_handled.wait()
        await self._forget_handled()

    async def _forget_handled(self) -> None:
        """Delete handled messages; after a failure, the next call tries again."""
        self._some_handled.clear()
        ids, self._handled = self._handled, []
        if not ids:
            return
        try:
            async with self._uow(one_statement=True) as uow:
                await uow.queue.delete(self._queue, ids)
        except BaseException:
            self._handled += ids
            self._some_handled.set()
            raise
        for message_id in ids:
            self._hidden_at.pop(message_id, None)
