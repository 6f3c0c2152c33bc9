"""Draining a long line against draining a short one: jobs a second, planned, ended and planned on.

Every job that starts is ended at once through the lifecycle (finished, then gone), as by a cluster without any delay,
so that cards come free and the line moves. Of the long line some parts are drained; of the short one all.
"""

import time
from datetime import timedelta

import uvloop

from benchmarks.allocation_throughput import RULES
from benchmarks.databases import add_cluster, add_waiting, database
from benchmarks.figures import Figure
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.pgmq.queue import open_client
from reservation_core.adapters.postgres.engine import open_engine
from reservation_core.adapters.postgres.unit_of_work import unit_of_work_factory
from reservation_core.adapters.postgres.wakeups import PostgresWakeups
from reservation_core.domain.changes import Event, PodsFinished, PodsGone
from reservation_core.domain.lifecycle import decide
from reservation_core.ports.queues import QueueName
from reservation_core.ports.transactions import UnitOfWork, UnitOfWorkFactory
from reservation_core.usecases.changing import carry_out
from reservation_core.usecases.plan_and_allocate import Planner

LONG = 1_000_000
SHORT = 20_000
ROUNDS = 5


def measure() -> list[Figure]:
    """The long line's parts and the short lines alternate."""
    long: list[float] = []
    short: list[float] = []
    with database() as long_url:
        uvloop.run(add_cluster(long_url, nodes=125, gpus_per_node=8))
        for part in range(10):
            uvloop.run(add_waiting(long_url, LONG // 10, prefix=f"l{part}"))
        for part in range(ROUNDS):
            with database() as short_url:
                uvloop.run(add_cluster(short_url, nodes=125, gpus_per_node=8))
                uvloop.run(add_waiting(short_url, SHORT, prefix=f"s{part}"))
                short.append(uvloop.run(_drain(short_url, SHORT)))
            long.append(uvloop.run(_drain(long_url, SHORT)))
    ratios = [a / b for a, b in zip(long, short, strict=True)]
    detail = f"long line {sorted(long)[ROUNDS // 2]:.0f} jobs/s, short line {sorted(short)[ROUNDS // 2]:.0f} jobs/s"
    name = "draining 1,000,000 waiting jobs ÷ draining 20,000"
    return [Figure(name, "x", ratios, 0.9, at_least=True, detail=detail)]


async def _drain(url: str, jobs: int) -> float:
    opened = open_engine(url, pool=5, application="bench")
    uow = unit_of_work_factory(opened, await open_client(opened), PostgresWakeups(url, "bench"))
    async with uow() as unit:
        epoch = await unit.planning.acquire("bench", timedelta(minutes=10))
    assert epoch is not None
    planner = Planner(uow, SystemClock(), epoch, RULES)
    started = time.monotonic()
    done = 0
    while done < jobs:
        await planner.cycle()
        await planner.publish_estimates()
        done += await _end_all(uow)
    elapsed = time.monotonic() - started
    async with uow() as unit:
        await unit.planning.release(epoch)
    await opened.dispose()
    return done / elapsed


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
