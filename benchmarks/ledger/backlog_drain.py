"""Draining a long line against draining a short one: jobs a second, planned, ended and planned on.

Every job that starts is ended at once through the lifecycle (finished, then gone), as by a cluster without any delay,
so that cards come free and the line moves. Of the long line one part a round is drained; of the short ones all. Within
a round both lines advance in turns, so that what disturbs the machine for a while disturbs both.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import uvloop
from sqlalchemy import text

from benchmarks.ledger.allocation_throughput import RULES
from benchmarks.measuring.databases import add_cluster, add_waiting, database
from benchmarks.measuring.figures import Figure
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import Event, PodsFinished, PodsGone
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.planning.planner import Planner

LONG = 1_000_000
SHORT = 20_000
ROUNDS = 5
TURN = 1000


def measure() -> list[Figure]:
    """In each round a new short line against the next part of the long one."""
    with database() as long_url:
        uvloop.run(add_cluster(long_url, nodes=125, gpus_per_node=8))
        for part in range(10):
            uvloop.run(add_waiting(long_url, LONG // 10, prefix=f"l{part}"))
        rounds = []
        for part in range(ROUNDS):
            with database() as short_url:
                uvloop.run(add_cluster(short_url, nodes=125, gpus_per_node=8))
                uvloop.run(add_waiting(short_url, SHORT, prefix=f"s{part}"))
                rounds.append(uvloop.run(_side_by_side(long_url, short_url)))
    ratios = [long / short for long, short in rounds]
    middle = ROUNDS // 2
    detail = (
        f"long line {sorted(long for long, _ in rounds)[middle]:.0f} jobs/s, "
        f"short line {sorted(short for _, short in rounds)[middle]:.0f} jobs/s"
    )
    name = "draining 1,000,000 waiting jobs ÷ draining 20,000"
    return [Figure(name, "x", ratios, 0.9, at_least=True, detail=detail)]


async def _side_by_side(long_url: str, short_url: str) -> tuple[float, float]:
    """Jobs a second of the long and of the short line."""
    async with _line(long_url) as long, _line(short_url) as short:
        while short.done < SHORT:
            await long.advance(TURN)
            await short.advance(TURN)
        return long.done / long.seconds, short.done / short.seconds


@dataclass
class _Line:
    """A line being drained, and what that has taken."""

    uow: UnitOfWorkFactory
    planner: Planner
    done: int = 0
    seconds: float = 0.0

    async def advance(self, jobs: int) -> None:
        """Drain so many more."""
        until = self.done + jobs
        began = time.monotonic()
        while self.done < until:
            await self.planner.cycle()
            await self.planner.publish_estimates()
            self.done += await _end_all(self.uow)
        self.seconds += time.monotonic() - began


@asynccontextmanager
async def _line(url: str) -> AsyncIterator[_Line]:
    opened = open_engine(url, pool=5, application="bench")
    async with opened.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        # What filling the tables left to be written is no part of draining them.
        await connection.execute(text("CHECKPOINT"))
    uow = UnitOfWorkFactory(opened, await open_client(opened), PostgresWakeups(url, "bench"))
    async with uow() as unit:
        epoch = await unit.planning.acquire("bench", timedelta(minutes=10))
    assert epoch is not None
    try:
        yield _Line(uow, Planner(uow, SystemClock(), epoch, RULES))
    finally:
        async with uow() as unit:
            await unit.planning.release(epoch)
        await opened.dispose()


async def _end_all(uow: UnitOfWorkFactory) -> int:
    """End everything that was started: what a cluster without any delay would report."""
    clock = SystemClock()
    async with uow() as unit:
        messages = await unit.queue.read(QueueName.POD_OPERATIONS, visibility=timedelta(minutes=1), limit=5000)
        await unit.queue.delete(QueueName.POD_OPERATIONS, [message.id for message in messages])
        ids = sorted({message.body["id"] for message in messages if message.body["op"] == "create"})
    if not ids:
        return 0
    async with uow() as unit:
        for event in (PodsFinished(clock.now(), 0), PodsGone()):
            await _apply(unit, ids, event, clock)
    return len(ids)


async def _apply(unit: UnitOfWork, ids: list[str], event: Event, clock: SystemClock) -> None:
    rows = await unit.reservations.lock(ids)
    changes = [change for row in rows.values() if (change := decide(row, event, clock.now())) is not None]
    await carry_out(unit, changes)
