"""CPUs and memory of nodes on a real database: the planner adds them up, and the ledger refuses too much."""

from datetime import timedelta

import pytest

from reservation_core.domain.errors import CalendarConflictError, NotBookableError
from reservation_core.domain.plan import PlacedGpu, Start
from reservation_core.domain.request_terms import Resources, Share
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.extend import extend
from tests.integration.reservation_core.usecases.booking_world import BookingWorld
from tests.integration.reservation_core.usecases.planning.test_slots import plan, slot
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LONGEST, World

HOUR = timedelta(hours=1)
MOST = {"cpus": 13}


async def has(world: World, cpu_milli: int | None = 16_000, memory_bytes: int | None = 64 * 2**30) -> None:
    """What every node has: with two GPUs, the share of each is half of it."""
    await world.sql("UPDATE nodes SET cpu_milli = :cpu, memory_bytes = :memory", cpu=cpu_milli, memory=memory_bytes)


async def test_a_job_that_asks_for_most_of_a_node_keeps_its_other_gpu_for_small_ones(world: World) -> None:
    await has(world)
    greedy = [await world.submitted(gpus=1, nodes=2, resources=MOST)]
    await plan(world)
    assert (await world.row(greedy[0])).status is JobStatus.STARTING
    plain = await world.submitted(gpus=1)
    small = await world.submitted(gpus=1, resources={"cpus": 3})
    await plan(world)
    # The share of one GPU is 8 CPUs, and 3 are left beside the first job.
    assert [(await world.row(job)).status for job in (plain, small)] == [JobStatus.QUEUED, JobStatus.STARTING]
    found = await slot(world, plain)
    assert found is not None
    assert found[0] == world.clock.now() + HOUR + ALLOWANCE
    assert (await world.row(small)).resources == Resources(Share(3000))


async def test_a_job_that_no_node_has_enough_for_says_so(world: World) -> None:
    await has(world, memory_bytes=None)
    jobs = [await world.submitted(resources=asked) for asked in ({"cpus": 17}, {"memory": "1Gi"})]
    await plan(world)
    details = [(await world.view(job)).reservation.reason.detail for job in jobs]
    assert "17 CPUs" in details[0]
    assert "16 CPUs" in details[0]
    assert "no node has that" in details[1]


async def test_the_ledger_refuses_a_start_that_a_stale_planner_decides(world: World) -> None:
    await has(world)
    greedy = await world.submitted(gpus=1, nodes=2, resources=MOST)
    await plan(world)
    assert (await world.row(greedy)).status is JobStatus.STARTING
    other = await world.submitted(gpus=1)
    taken = {gpu.gpu_id for gpu in await world.cards(greedy)}
    found = await world.sql("SELECT g.id, g.index, n.name FROM gpus g JOIN nodes n ON n.id = g.node_id ORDER BY g.id")
    free = next(row for row in found if row.id not in taken)
    now = world.clock.now()
    start = Start(other, now, now + HOUR, (PlacedGpu(free.id, free.name, free.index, 0),))
    async with world.uow() as uow:
        epoch = await uow.planning.acquire("test", HOUR)
    assert epoch is not None
    async with world.uow() as uow:
        with pytest.raises(CalendarConflictError):
            await uow.planning.commit(epoch, [start], now)
    assert (await world.row(other)).status is JobStatus.QUEUED


async def test_a_job_can_not_be_extended_over_what_another_was_promised(world: World) -> None:
    await has(world)
    both = await world.ran(gpus=1, nodes=2, resources=MOST)
    next_one = await world.submitted(gpus=1, nodes=2, resources=MOST)
    await plan(world)
    promised = await slot(world, next_one)
    assert promised is not None
    assert promised[0] == world.clock.now() + HOUR
    with pytest.raises(CalendarConflictError):
        async with world.uow() as uow:
            await extend(uow, world.who, both, HOUR, None, LONGEST, world.clock.now())


async def test_a_node_on_which_a_job_has_more_than_its_share_can_not_be_booked_meanwhile(
    bookings: BookingWorld,
) -> None:
    world = bookings.world
    await has(world)
    await world.submitted(gpus=1, nodes=2, resources=MOST)
    await plan(world)
    with pytest.raises(NotBookableError):
        await bookings.booked(world.clock.now(), gpus=1)
    booking = await bookings.booked(world.clock.now() + 3 * HOUR, gpus=1)
    # And what is booked is kept from jobs.
    late = await world.submitted(gpus=2, nodes=2, resources={"cpus": 16}, duration="PT12H")
    await plan(world)
    found = await slot(world, late)
    assert found is not None
    assert found[0] >= booking.span.end
