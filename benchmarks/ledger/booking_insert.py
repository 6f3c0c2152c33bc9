"""Storing a booking with the calendar's exclusion constraint, against the same without it.

Two databases alike but for the constraint, each with 20,000 bookings on 1,000 cards; rounds alternate. The figure
covers the whole of what a booking writes (row, slot, card, record, message) and its durable commit, by eight clients at
a time; choosing the card is not.
"""

import asyncio
import itertools
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import uvloop
from sqlalchemy import text

from benchmarks.ledger.calendar_reads import BOOKINGS, fill
from benchmarks.measuring.databases import add_cluster, database, engine
from benchmarks.measuring.figures import Figure
from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.nouns import Booking, ChosenGpu, Wanted, Why
from reservation_core.domain.statuses import BookingReason, BookingStatus
from reservation_core.ports.bookings.bookings import NewBooking

CLIENTS = 8
ROUNDS = 7
SECONDS = 3.0
_NODES = 125
_IDS = RandomIds()


def measure() -> list[Figure]:
    """The rate with the constraint as a part of the rate without it."""
    with ExitStack() as open_databases:
        urls = [open_databases.enter_context(database()) for _ in range(2)]
        for url in urls:
            uvloop.run(_prepare(url, constrained=url == urls[0]))
        constrained, free = uvloop.run(_rounds(urls))
    ratios = [ours / theirs for ours, theirs in zip(constrained, free, strict=True)]
    detail = f"{sorted(constrained)[ROUNDS // 2]:.0f}/s with it, {sorted(free)[ROUNDS // 2]:.0f}/s without"
    return [Figure("booking insert with ÷ without the exclusion", "x", ratios, 0.85, at_least=True, detail=detail)]


async def _prepare(url: str, *, constrained: bool) -> None:
    await add_cluster(url, nodes=_NODES, gpus_per_node=8)
    await fill(url)
    if not constrained:
        opened = engine(url)
        async with opened.begin() as connection:
            await connection.execute(text("ALTER TABLE allocations DROP CONSTRAINT allocations_calendar"))
        await opened.dispose()


async def _rounds(urls: list[str]) -> tuple[list[float], list[float]]:
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for url, found in zip(urls, rates, strict=True):
            rate = await _rate(url, number)
            if number:  # the first is warm-up
                found.append(rate)
    return rates


async def _rate(url: str, number: int) -> float:
    opened = open_engine(url, pool=CLIENTS, application="bench")
    uow = UnitOfWorkFactory(opened, await open_client(opened), PostgresWakeups(url, "bench"))
    async with opened.connect() as connection:
        gpus = [row.id for row in await connection.execute(text("SELECT id FROM gpus ORDER BY id"))]
        user = (await connection.execute(text("SELECT id FROM users WHERE name = 'bench'"))).scalar_one()
    # Behind all that is booked; each round has months of its own.
    base = (datetime.now(UTC) + timedelta(days=60 + 30 * number)).replace(second=0, microsecond=0)
    slots = ((base + timedelta(hours=2 * hour), gpu) for hour in itertools.count() for gpu in gpus)
    stored = 0
    until = time.monotonic() + SECONDS

    async def client() -> None:
        nonlocal stored
        while time.monotonic() < until:
            start, gpu = next(slots)
            async with uow() as work:
                if not await work.bookings.add([_new(user, start, gpu)], None):
                    raise RuntimeError("a card was taken that nobody else wanted")
            stored += 1

    began = time.monotonic()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    rate = stored / (time.monotonic() - began)
    await opened.dispose()
    return rate


def _new(user_id: int, start: datetime, gpu_id: int) -> NewBooking:
    booking = Booking(
        id=_IDS.new_id("bkg"),
        seq=0,
        user_id=user_id,
        user="bench",
        title=None,
        project=None,
        status=BookingStatus.CONFIRMED,
        why=Why(BookingReason.BOOKED, f"One of {BOOKINGS} and more."),
        wanted=Wanted(1, 1, "h100"),
        span=Span(start, start + timedelta(hours=2)),
        workload=None,
        created_at=datetime.now(UTC),
        version=1,
    )
    return NewBooking(booking, (ChosenGpu(gpu_id, 0),))
