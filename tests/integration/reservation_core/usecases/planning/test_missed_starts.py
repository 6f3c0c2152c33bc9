"""Promised starts that were missed while nothing planned: recorded once, by the transaction that ends the wait."""

import asyncio
from datetime import timedelta

import pytest

from reservation_core.domain.errors import AlreadyFinalError
from reservation_core.domain.jobs.promises import ALLOCATED_LATE, NEVER_STARTED, RAN_LATE
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.planning.planner import Planner
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld
from tests.integration.reservation_core.usecases.planning.test_slots import SECOND, WHOLE, plan
from tests.integration.reservation_core.usecases.world import LONGEST, pod

MISSED = "start_promise_missed"


@pytest.fixture
async def waits(bookings: BookingWorld) -> str:
    """A job that is promised all GPUs for when the job on them ends, in an hour; then nothing plans any more."""
    await bookings.world.ran(**WHOLE)
    job_id = await bookings.world.submitted(**WHOLE)
    await plan(bookings.world)
    assert (await bookings.world.view(job_id)).promised_start_at == START + HOUR
    return job_id


async def goes_on(bookings: BookingWorld, after: timedelta) -> None:
    """It becomes so much later than the promised start."""
    bookings.world.clock.at = START + HOUR + after
    await bookings.time.set(bookings.world.clock.at)


async def free_the_gpus(bookings: BookingWorld) -> None:
    """The job that runs is over, and gone."""
    world = bookings.world
    [runs] = await bookings.rows("SELECT id FROM reservations WHERE status = 'running'")
    async with world.uow() as uow:
        await cancel(uow, world.who, runs["id"], None, world.clock.now())
    world.cluster.pods.clear()
    await world.operate()


async def runs_now(bookings: BookingWorld, job_id: str) -> None:
    """Its pods begin to run this very moment."""
    world = bookings.world
    shown = [world.cluster.show(pod(job_id, rank), PodPhase.RUNNING, started_at=world.clock.now()) for rank in range(2)]
    await world.see(*shown)
    assert (await world.row(job_id)).status is JobStatus.RUNNING


async def because(bookings: BookingWorld, job_id: str) -> list[str]:
    """Why its start was missed, as often as that was recorded."""
    return [event.data["because"] for event in await bookings.world.events(job_id) if event.kind == MISSED]


async def starts(bookings: BookingWorld, job_id: str) -> None:
    """A planner comes up, and gives it its GPUs."""
    await free_the_gpus(bookings)
    await plan(bookings.world)
    assert (await bookings.world.row(job_id)).status is JobStatus.STARTING
    await bookings.world.operate()


async def test_a_start_that_nothing_planned_in_time_is_recorded_when_it_comes(
    bookings: BookingWorld, waits: str
) -> None:
    await goes_on(bookings, 40 * SECOND)
    await starts(bookings, waits)
    await runs_now(bookings, waits)
    assert await because(bookings, waits) == [ALLOCATED_LATE]
    said = await bookings.told(waits, MISSED)
    assert said["started_at"] == (START + HOUR + 40 * SECOND).isoformat()
    assert said["promised_start_at"] == (START + HOUR).isoformat()


async def test_a_start_within_the_slack_was_kept(bookings: BookingWorld, waits: str) -> None:
    """Its pods have some more time to begin than nothing has to plan."""
    await goes_on(bookings, 2 * SECOND)
    await starts(bookings, waits)
    await goes_on(bookings, 5 * SECOND)
    await runs_now(bookings, waits)
    assert await because(bookings, waits) == []


async def test_pods_that_nothing_made_in_time_are_recorded_as_the_cause(bookings: BookingWorld, waits: str) -> None:
    await goes_on(bookings, SECOND)
    await starts(bookings, waits)
    await goes_on(bookings, 30 * SECOND)
    await runs_now(bookings, waits)
    assert await because(bookings, waits) == [RAN_LATE]


@pytest.mark.parametrize("after", [SECOND, 30 * SECOND])
async def test_a_job_that_is_cancelled_after_its_promise_was_let_down(
    bookings: BookingWorld, waits: str, after: timedelta
) -> None:
    world = bookings.world
    await goes_on(bookings, after)
    async with world.uow() as uow:
        await cancel(uow, world.who, waits, None, world.clock.now())
    assert await because(bookings, waits) == ([NEVER_STARTED] if after > 2 * SECOND else [])


async def test_an_extension_does_not_undo_a_missed_start(bookings: BookingWorld, waits: str) -> None:
    world = bookings.world
    await goes_on(bookings, 30 * SECOND)
    async with world.uow() as uow:
        await extend(uow, world.who, waits, HOUR, None, LONGEST, world.clock.now())
    assert await because(bookings, waits) == [NEVER_STARTED]
    assert (await world.view(waits)).promised_start_at is None


async def test_what_a_planner_has_recorded_is_not_recorded_again(bookings: BookingWorld, waits: str) -> None:
    await goes_on(bookings, 5 * SECOND)
    await plan(bookings.world)
    assert len(await because(bookings, waits)) == 1
    await starts(bookings, waits)
    await runs_now(bookings, waits)
    assert len(await because(bookings, waits)) == 1


async def test_a_planner_and_an_owner_who_notice_at_once_record_it_once(bookings: BookingWorld) -> None:
    world = bookings.world
    for _ in range(4):
        await world.ran()
    jobs = [await world.submitted() for _ in range(4)]
    planner = await plan(world)
    await goes_on(bookings, 5 * SECOND)

    async def notice(by: Planner) -> None:
        await by.cycle()
        await by.give_slots()

    async def give_up(job_id: str) -> None:
        async with world.uow() as uow:
            await cancel(uow, world.who, job_id, None, world.clock.now())

    await asyncio.gather(notice(planner), *(give_up(job_id) for job_id in jobs))
    assert [len(await because(bookings, job_id)) for job_id in jobs] == [1] * 4
    with pytest.raises(AlreadyFinalError):
        await give_up(jobs[0])
