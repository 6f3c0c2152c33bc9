"""A runtime whose ports say what passes through them: the place where tests let things go wrong, outside the product.

A moment is a text such as `before create_pod`, `after plan committed`. A listener may kill the process there, or raise
what a port may raise.
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from reservation_core.adapters.postgres.unit_of_work import HeldPods, UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import DecidedChange
from reservation_core.domain.jobs.arrays import ArrayState
from reservation_core.domain.model import PodName, PodSpec, PodStatus, Reason
from reservation_core.domain.plan import Start
from reservation_core.domain.statuses import FINAL_STATUSES
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.planning.planning import PlannerNews, PlanOutcome
from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.runtime.wiring import Runtime

Listener = Callable[[str], None]


class _Delegating:
    """Everything that isn't watched goes straight on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class WatchedCluster(_Delegating):
    """Says `before X` and `after X` of every call X that asks or changes the cluster."""

    def __init__(self, inner: Cluster, listener: Listener) -> None:
        super().__init__(inner)
        self._listener = listener

    async def list_nodes(self) -> Any:
        return await self._told("list_nodes", self._inner.list_nodes())

    async def list_pods(self, *, foreign: bool = False) -> Any:
        return await self._told("list_pods", self._inner.list_pods(foreign=foreign))

    async def find_pods(self, reservation_id: str, named: Collection[PodName] = ()) -> Any:
        return await self._told("find_pods", self._inner.find_pods(reservation_id, named))

    async def create_pod(self, spec: PodSpec, unanswered: Callable[[], None] | None = None) -> None:
        await self._told("create_pod", self._inner.create_pod(spec, unanswered))

    async def delete_pod(
        self, name: str, grace: timedelta, *, keep_name: bool = False, why: Reason | None = None
    ) -> None:
        await self._told("delete_pod", self._inner.delete_pod(name, grace, keep_name=keep_name, why=why))

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        await self._told("extend_deadline", self._inner.extend_deadline(name, deadline))

    async def signal_pod(self, name: str, signal: str) -> None:
        await self._told("signal_pod", self._inner.signal_pod(name, signal))

    async def watch(self) -> AsyncIterator[PodStatus]:
        stream = self._inner.watch()
        try:
            async for status in stream:
                self._listener("during watch")
                yield status
        finally:
            await stream.aclose()

    async def _told(self, name: str, call: Any) -> Any:
        try:
            self._listener(f"before {name}")
        except BaseException:
            call.close()
            raise
        answer = await call
        self._listener(f"after {name}")
        return answer


class _WatchedUnitOfWork(_Delegating):
    """Remembers what the transaction did that is worth a moment."""

    def __init__(self, inner: UnitOfWork) -> None:
        super().__init__(inner)
        self.done: list[str] = []
        self.queue = _WatchedQueue(inner.queue, self.done)
        self.planning = _WatchedPlanning(inner.planning, self.done)
        self.reservations = _WatchedReservations(inner.reservations, self.done)
        self.arrays = _WatchedArrays(inner.arrays, self.done)


class _Noting(_Delegating):
    def __init__(self, inner: Any, done: list[str]) -> None:
        super().__init__(inner)
        self._done = done


class _WatchedQueue(_Noting):
    async def read(self, queue: QueueName, *, visibility: timedelta, limit: int) -> list[QueuedMessage]:
        found: list[QueuedMessage] = await self._inner.read(queue, visibility=visibility, limit=limit)
        if found:
            self._done.append(f"read of {queue.value}")
        return found


class _WatchedArrays(_Noting):
    async def take_news(self, array_id: str) -> tuple[ArrayState, int] | None:
        taken: tuple[ArrayState, int] | None = await self._inner.take_news(array_id)
        self._done.append("news of arrays")
        return taken

    async def make(self, array_id: str, count: int, reason: Reason, now: datetime) -> None:
        await self._inner.make(array_id, count, reason, now)
        self._done.append("elements made")


class _WatchedPlanning(_Noting):
    async def news(self, limit: int, start_allowance: timedelta) -> PlannerNews:
        news: PlannerNews = await self._inner.news(limit, start_allowance)
        if news.messages:
            self._done.append("read of gpu_jobs")
        return news

    async def commit(
        self, epoch: int, starts: Sequence[Start], now: datetime, handled: Sequence[int] = ()
    ) -> PlanOutcome:
        outcome: PlanOutcome = await self._inner.commit(epoch, starts, now, handled)
        if outcome.started:
            self._done.append("plan")
        return outcome


class _WatchedReservations(_Noting):
    async def apply(self, changes: Sequence[DecidedChange]) -> None:
        await self._inner.apply(changes)
        for change in changes:
            if change.before.status is not change.after.status:
                final = change.after.status in FINAL_STATUSES
                self._done.append("close" if final else change.after.status.value)
            elif change.before.held is not change.after.held:
                self._done.append("release")


def watched(runtime: Runtime, listener: Listener) -> Runtime:
    """The same runtime, heard by `listener`: `before X committed`, `after X committed` of what transactions do."""
    return replace(
        runtime,
        uow=_WatchedUnitsOfWork(runtime.uow, listener),
        cluster=WatchedCluster(runtime.cluster, listener),  # type: ignore[arg-type]
    )


class _WatchedHeldPods(_Delegating):
    def __init__(self, inner: HeldPods, listener: Listener) -> None:
        super().__init__(inner)
        self._listener = listener

    def work(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[UnitOfWork]:
        return _heard(self._inner.work(one_statement=one_statement), self._listener)


class _WatchedUnitsOfWork:
    def __init__(self, inner: UnitOfWorkFactory, listener: Listener) -> None:
        self._inner = inner
        self._listener = listener

    def __call__(self, *, one_statement: bool = False) -> AbstractAsyncContextManager[UnitOfWork]:
        # Always a transaction, so that there is a moment before its commit.
        return _heard(self._inner(), self._listener)

    @asynccontextmanager
    async def hold_pods(
        self, reservation_ids: Sequence[str], *, patience: timedelta = timedelta(0)
    ) -> AsyncIterator[HeldPods]:
        async with self._inner.hold_pods(reservation_ids, patience=patience) as held:
            yield _WatchedHeldPods(held, self._listener)  # type: ignore[misc]

    def bounded(self, *, connection: timedelta, statement: timedelta) -> UnitOfWorkFactory:
        return _WatchedUnitsOfWork(self._inner.bounded(connection=connection, statement=statement), self._listener)


@asynccontextmanager
async def _heard(opened: AbstractAsyncContextManager[UnitOfWork], listener: Listener) -> AsyncIterator[UnitOfWork]:
    async with opened as uow:
        seen = _WatchedUnitOfWork(uow)
        yield seen  # type: ignore[misc]
        for act in seen.done:
            listener(f"before {act} committed")
    for act in seen.done:
        listener(f"after {act} committed")
