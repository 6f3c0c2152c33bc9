"""CPUs and memory of jobs in bookings on a real database: at most the share of the job's own GPUs, whoever asks."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.kubernetes.pods.built_pods import build_pod
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.errors import BeyondBookedShareError, BookingNotUsableError
from reservation_core.domain.request_terms import Resources, Share
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.submit import submit
from tests.integration.reservation_core.usecases.booking_world import BookingWorld
from tests.integration.reservation_core.usecases.planning.test_shares import has
from tests.integration.reservation_core.usecases.planning.test_slots import START, plan, slot
from tests.integration.reservation_core.usecases.world import World
from tests.unit.reservation_core.adapters.kubernetes.pods.specs import RULES, SINGLE, container_of

HOUR = timedelta(hours=1)


async def refusal(world: World, **fields: object) -> object:
    [answer] = await submit(world.uow, [world.new(**fields)], world.clock.now())
    return answer.refusal


async def begun(bookings: BookingWorld, **fields: object) -> Booking:
    """A booking of a whole node of two GPUs, 16 CPUs and 64 GiB, that has begun."""
    await has(bookings.world)
    booking = await bookings.booked(START + HOUR, 4 * HOUR, **{"gpus": 2, **fields})
    await bookings.at(START + HOUR)
    return booking


@pytest.mark.parametrize(
    ("gpus", "fits", "beyond", "field", "limit"),
    [
        (1, {"cpus": 8}, {"cpus": 8.001}, "resources.cpus", "at most 8 CPUs"),
        (2, {"cpus": 16, "memory": "64Gi"}, {"cpus": 16.5}, "resources.cpus", "at most 16 CPUs"),
        (1, {"memory": "32Gi"}, {"memory": 32 * 2**30 + 1}, "resources.memory", "at most 32Gi"),
        (1, {"shm": "32Gi"}, {"shm": "33Gi"}, "resources.shm", "at most 32Gi"),
    ],
)
async def test_a_job_may_ask_for_the_share_of_its_own_gpus_and_no_more(
    bookings: BookingWorld, gpus: int, fits: dict[str, object], beyond: dict[str, object], field: str, limit: str
) -> None:
    booking = await begun(bookings)
    world = bookings.world
    assert await refusal(world, booking_id=booking.id, gpus=gpus, resources=fits) is None
    refused = await refusal(world, booking_id=booking.id, gpus=gpus, resources=beyond)
    assert isinstance(refused, BeyondBookedShareError)
    assert limit in refused.detail
    assert [rule.detail.partition(":")[0] for rule in refused.broken_rules] == [field]


async def test_the_smallest_node_decides_and_one_that_reports_nothing_gives_nothing(bookings: BookingWorld) -> None:
    world = bookings.world
    await has(world)
    booking = await bookings.booked(START + HOUR, gpus=1, nodes=2)
    await world.sql("UPDATE nodes SET cpu_milli = 10000, memory_bytes = NULL WHERE id = (SELECT min(id) FROM nodes)")
    both = await refusal(world, booking_id=booking.id, gpus=1, resources={"cpus": 5.5, "memory": "1Gi"})
    assert isinstance(both, BeyondBookedShareError)
    assert "at most 5 CPUs" in both.detail
    assert "does not report" in both.detail
    assert len(both.broken_rules) == 2
    assert await refusal(world, booking_id=booking.id, gpus=1, resources={"cpus": 5}) is None
    # GPUs that the booking lacks are named first.
    assert isinstance(
        await refusal(world, booking_id=booking.id, gpus=2, resources={"cpus": 99}), BookingNotUsableError
    )


async def test_jobs_run_in_a_booking_with_what_they_ask_for_and_the_ledger_counts_the_booking(
    bookings: BookingWorld,
) -> None:
    booking = await begun(bookings)
    world = bookings.world
    jobs = [
        await world.submitted(booking_id=booking.id, gpus=1, resources={"cpus": 8, "memory": "32Gi"}) for _ in range(3)
    ]
    beside = await world.submitted(gpus=2, nodes=1, resources={"cpus": 16})
    planner = await plan(world)
    assert [(await world.row(job)).status for job in (*jobs, beside)] == [
        JobStatus.STARTING,
        JobStatus.STARTING,
        JobStatus.QUEUED,
        JobStatus.STARTING,  # on the other node
    ]
    assert await slot(world, jobs[2]) is not None
    assert (await world.row(jobs[0])).resources == Resources(Share(8000, 32 * 2**30))
    amounts = await bookings.rows("SELECT cpu_milli, memory_bytes FROM allocations WHERE booking_id IS NOT NULL")
    assert amounts == [{"cpu_milli": None, "memory_bytes": None}] * 3
    asked = (Resources(Share(8000, 32 * 2**30)),)
    # Their pods have it, on Kubernetes as requests and limits.
    await world.operate()
    specs = [replace(spec, workload=SINGLE.workload) for spec in world.cluster.created if spec.resources in asked]
    containers = [container_of(build_pod(spec, RULES, world.clock.now())) for spec in specs]
    assert len(containers) == 2
    for kind in ("requests", "limits"):
        assert {tuple(sorted(container["resources"][kind].items())) for container in containers} == {
            (("cpu", "8"), ("memory", "32Gi"))
        }
    # The booking ends, and with it what runs in it and what waits.
    await bookings.at(booking.span.end)
    await plan(world, planner)
    assert (await world.row(jobs[2])).status is JobStatus.EXPIRED


async def test_a_booking_that_moved_to_smaller_nodes_keeps_its_jobs_waiting_with_the_reason(
    bookings: BookingWorld,
) -> None:
    world = bookings.world
    await has(world)
    booking = await bookings.booked(START + HOUR, 4 * HOUR, gpus=2)
    greedy = await world.submitted(booking_id=booking.id, gpus=1, resources={"cpus": 8})
    plain = await world.submitted(booking_id=booking.id, gpus=1)
    planner = await plan(world)
    assert None not in [await slot(world, job) for job in (greedy, plain)]
    # The booking is moved: its GPUs are on a node with less.
    await world.sql("UPDATE nodes SET cpu_milli = 15000")
    await bookings.at(START + HOUR)
    planner = await plan(world)
    assert [(await world.row(job)).status for job in (greedy, plain)] == [JobStatus.QUEUED, JobStatus.STARTING]
    assert await slot(world, greedy) is None
    reason = (await world.view(greedy)).reservation.reason
    assert "submit it again with less" in reason.detail
    # The node has what it had again.
    await world.sql("UPDATE nodes SET cpu_milli = 16000")
    planner = await plan(world)
    assert (await world.row(greedy)).status is JobStatus.STARTING
    assert planner is not None


RAW = """
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, booking_id, created_at)
SELECT :job, 1, a.gpu_id, 0, a.during, false, :booking, ledger_now()
FROM allocations a WHERE a.reservation_id = :booking ORDER BY a.gpu_id LIMIT :gpus
"""


async def test_the_ledger_refuses_what_is_more_than_the_share_of_a_jobs_gpus(bookings: BookingWorld) -> None:
    """As a planner would write it that goes wrong, or anybody who writes SQL."""
    booking = await begun(bookings)
    world = bookings.world
    job = await world.submitted(booking_id=booking.id, gpus=2, resources={"cpus": 16})
    raw = {"job": job, "booking": booking.id}
    with pytest.raises(IntegrityError, match="asks for more CPUs or memory"):
        await bookings.rows(RAW + "RETURNING id", **raw, gpus=1)
    await world.sql("UPDATE nodes SET cpu_milli = 15999")
    with pytest.raises(IntegrityError, match="asks for more CPUs or memory"):
        await bookings.rows(RAW + "RETURNING id", **raw, gpus=2)
    await world.sql("UPDATE nodes SET cpu_milli = NULL")
    with pytest.raises(IntegrityError, match="asks for more CPUs or memory"):
        await bookings.rows(RAW + "RETURNING id", **raw, gpus=2)
    await world.sql("UPDATE nodes SET cpu_milli = 16000")
    assert len(await bookings.rows(RAW + "RETURNING id", **raw, gpus=2)) == 2
    for column, value in (("cpu_milli", 16_001), ("memory_bytes", 2**40)):
        with pytest.raises(IntegrityError, match="can't ask for other amounts"):
            await world.sql(f"UPDATE reservations SET {column} = :value WHERE id = :id", value=value, id=job)
        with pytest.raises(IntegrityError, match="allocations_shares_in_bookings"):
            await world.sql(f"UPDATE allocations SET {column} = 1 WHERE reservation_id = :id", id=job)
    with pytest.raises(IntegrityError, match="reservations_shares_of_jobs"):
        await world.sql("UPDATE reservations SET cpu_milli = 1 WHERE id = :id", id=booking.id)


async def test_amounts_that_an_older_planner_writes_into_a_bookings_rows_are_left_out(bookings: BookingWorld) -> None:
    booking = await begun(bookings)
    job = await bookings.world.submitted(booking_id=booking.id, gpus=2, resources={"cpus": 16})
    older = RAW.replace("created_at)", "created_at, cpu_milli)").replace("ledger_now()", "ledger_now(), 16000")
    rows = await bookings.rows(older + "RETURNING cpu_milli", job=job, booking=booking.id, gpus=2)
    assert rows == [{"cpu_milli": None}] * 2
