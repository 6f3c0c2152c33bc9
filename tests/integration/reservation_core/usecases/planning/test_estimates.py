"""Places and starts as people read them, on a real database: none before the planner has looked, then the true ones."""

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.jobs.job_views import JobViews
from reservation_core.domain.errors import NotBookableError
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.usecases.nodes.maintenance import keep_windows, plan_window
from reservation_core.usecases.planning.planner import Planner
from tests.clocks import START
from tests.database.sql import connection_of
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.nodes.test_maintenance import wanted
from tests.integration.reservation_core.usecases.planning.test_slots import plan
from tests.integration.reservation_core.usecases.world import World, pod

DAY = timedelta(days=1)


async def queue(world: World) -> dict[str, JobView]:
    """Waiting jobs, as `GET /v1/queue` has them."""
    async with world.uow() as uow:
        return {view.reservation.id: view for view in await uow.reservations.waiting_views(None, limit=100, after=None)}


async def test_bookings_days_ahead_put_off_nobody_on_a_free_gpu(bookings: BookingWorld) -> None:
    world = bookings.world
    await bookings.booked(START + 3 * DAY, 12 * HOUR, gpus=2, nodes=2)
    job_id = await world.submitted(duration=60)
    for view in (await world.view(job_id), (await queue(world))[job_id]):
        assert (view.queue_position, view.estimated_start_at) == (None, None)
        assert view.reservation.reason.code.value == "submitted"
    await plan(world)
    assert (await world.row(job_id)).status is JobStatus.STARTING


async def test_there_is_no_place_before_the_planner_has_looked_whoever_waits_before(world: World) -> None:
    """A job behind one that waits may still start at once, beside it."""
    await world.ran()
    waits = await world.submitted(gpus=2, nodes=2)
    planner = await plan(world)
    assert (await world.view(waits)).queue_position == 1
    world.clock.go_on(MINUTE)
    beside = await world.submitted(duration=60)
    assert (await world.view(beside)).queue_position is None
    assert (await queue(world))[beside].estimated_start_at is None
    await plan(world, planner)
    assert (await world.row(beside)).status is JobStatus.STARTING


async def test_a_job_that_starts_while_it_is_read_has_no_place(world: World) -> None:
    """It was in the line for the first statement and is not for the second: there is no place 0."""
    job_id = await world.submitted()
    async with world.uow() as uow:
        connection = connection_of(uow)
        found = await connection.execute(statement("view_reservation"), {"id": job_id, "user_id": None})
        rows = found.all()
        await plan(world)
        assert await JobViews(connection)._places_behind_the_told(rows) == {}


async def test_psql_reads_the_same_start_as_everybody(bookings: BookingWorld) -> None:
    world = bookings.world
    world.rules = replace(world.rules, estimates=1)
    await world.ran(gpus=2, nodes=2)
    for _ in range(3):
        await world.submitted(gpus=2, nodes=2)
    await plan(world)
    shown = {row["id"]: row["estimated_start"] for row in await bookings.rows("SELECT * FROM queue_status")}
    assert shown == {job_id: view.estimated_start_at for job_id, view in (await queue(world)).items()}
    assert len(set(shown.values())) == 3


class Life:
    """A lab in which all lasts as long as it was said to, on a real database; it goes on minute by minute."""

    def __init__(self, bookings: BookingWorld, seed: int) -> None:
        self.bookings = bookings
        self.chance = Random(seed)
        bookings.world.rules = replace(bookings.world.rules, start_allowance=timedelta(0))
        self.world = bookings.world
        self.open: list[str] = []
        self.told: dict[str, datetime] = {}
        self.started: dict[str, datetime] = {}

    async def fill_the_calendar(self) -> None:
        """Bookings soon and days ahead, and a node in maintenance."""
        chance = self.chance
        for _ in range(6):
            start = START + chance.choice((1, 4, 10, 60, 5000)) * MINUTE
            with suppress(NotBookableError):
                await self.bookings.booked(
                    start, chance.choice((5, 30, 600)) * MINUTE, gpus=chance.choice((1, 2)), nodes=chance.choice((1, 2))
                )
        with suppress(NotBookableError):
            request = wanted(START + chance.choice((2, 15, 2000)) * MINUTE, 10 * MINUTE)
            async with self.world.uow() as uow:
                await plan_window(uow, await self.bookings.root(), request, self.bookings.ids, timedelta(0))

    async def submit(self) -> None:
        """A job or two; nobody is told anything yet but that it was accepted."""
        for _ in range(self.chance.randint(0, 2)):
            job_id = await self.world.submitted(
                gpus=self.chance.choice((1, 1, 2)),
                nodes=self.chance.choice((1, 1, 2)),
                duration=60 * self.chance.choice((1, 3, 8, 40)),
            )
            self.open.append(job_id)
            view = (await queue(self.world))[job_id]
            assert (view.queue_position, view.estimated_start_at) == (None, None)

    async def cycle(self, planner: Planner) -> None:
        """End what is over, let the planner do all it has to, and ask as everybody."""
        world, now = self.world, self.world.clock.now()
        for job_id in list(self.open):
            row = await world.row(job_id)
            if row.status is JobStatus.RUNNING and row.ends_at is not None and row.ends_at <= now:
                for rank in range(row.nodes):
                    await world.see(world.cluster.show(pod(job_id, rank), PodPhase.FINISHED, exit_code=0))
                await world.operate()
                await world.see(*(world.cluster.show(pod(job_id, rank), PodPhase.GONE) for rank in range(row.nodes)))
                self.open.remove(job_id)
        await plan(world, planner)
        waiting = await queue(world)
        for job_id, view in waiting.items():
            assert view.queue_position is not None
            assert view.queue_position >= 1
            assert view.estimated_start_at is not None
            self.told.setdefault(job_id, view.estimated_start_at)
        await world.operate()
        for job_id in self.open:
            row = await world.row(job_id)
            if row.status is JobStatus.STARTING:
                self.started[job_id] = now
                for rank in range(row.nodes):
                    await world.see(world.cluster.show(pod(job_id, rank), PodPhase.RUNNING, started_at=now))


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_read_of_a_start_is_when_it_is(bookings: BookingWorld, seed: int) -> None:
    life = Life(bookings, seed)
    await life.fill_the_calendar()
    planner = await bookings.world.planner()
    for minute in range(80):
        await bookings.at(START + minute * MINUTE)
        await keep_windows(bookings.world.uow)
        if minute < 6:
            await life.submit()
        await life.cycle(planner)
        if minute >= 6 and not life.open:
            break
    assert life.told
    past = START + 79 * MINUTE
    assert {job_id: told for job_id, told in life.told.items() if told <= past} == {
        job_id: life.started[job_id] for job_id in life.told if job_id in life.started
    }


async def test_a_card_is_free_from_the_end_of_what_follows_its_job_at_once(bookings: BookingWorld) -> None:
    world = bookings.world
    world.rules = replace(world.rules, start_allowance=timedelta(0))
    job_id = await world.ran(gpus=2, nodes=2, duration=3600)
    await bookings.booked(START + HOUR, 2 * HOUR, gpus=2, node="a")
    await bookings.booked(START + 3 * HOUR + MINUTE, HOUR, gpus=2, node="a")
    async with world.uow() as uow:
        shown = {(card.node, card.free_at) for card in await uow.inventory.gpus(after=None, limit=10)}
    assert shown == {("a", START + 3 * HOUR), ("b", START + HOUR)}
    rows = await bookings.rows("SELECT node, holder, free_at FROM gpu_status")
    assert {(row["node"], row["free_at"]) for row in rows} == shown
    assert {row["holder"] for row in rows} == {job_id}
