"""Ended jobs of a given age, and a look at what is left of them."""

from datetime import timedelta

from reservation_core.domain.history.retention import RetentionRules
from reservation_core.domain.model import PodPhase
from reservation_core.domain.policy.usage import SUMMED_AFTER
from reservation_core.ports.jobs.pod_logs import KeptLog
from reservation_core.usecases.history.retention import RetentionReport, RetentionWalk, remove_old_history
from reservation_core.usecases.policy.usage import sum_up_given_back, sum_up_usage
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld
from tests.integration.reservation_core.usecases.world import pod

DAY = timedelta(days=1)


RULES = RetentionRules(
    events=None, jobs=400 * DAY, allocations=400 * DAY, logs=7 * DAY, dead_letters=30 * DAY, idempotency=DAY
)


TINY = RetentionRules(*[timedelta(seconds=1)] * 6)


FOR_EVER = RetentionRules(None, None, None, None, None, None)


BELONGINGS = ("allocations", "start_promises", "pod_logs", "wait_estimates")


async def look(
    bookings: BookingWorld, rules: RetentionRules = RULES, walk: RetentionWalk | None = None
) -> RetentionReport:
    return await remove_old_history(bookings.world.uow, bookings.world.cluster, rules, walk or RetentionWalk())


async def summed(bookings: BookingWorld) -> None:
    """Add up what ended: given back time by week, and usage by day."""
    await pass_time(bookings, 2 * SUMMED_AFTER)
    await sum_up_given_back(bookings.world.uow)
    await sum_up_usage(bookings.world.uow)


async def pass_time(bookings: BookingWorld, by: timedelta) -> None:
    await bookings.time.go_on(by)
    bookings.world.clock.at = bookings.time.at


async def ended_job(bookings: BookingWorld, **fields: object) -> str:
    """The id of a job that ran for an hour and is over now."""
    world = bookings.world
    job_id = await world.ran(**fields)
    await pass_time(bookings, HOUR)
    async with world.uow() as uow:
        await uow.pod_logs.keep([KeptLog(pod(job_id), b"the end\n", complete=True)], world.clock.now())
    await world.see(world.cluster.show(pod(job_id), PodPhase.FINISHED, started_at=START, exit_code=0))
    await world.operate()
    await world.see(world.cluster.show(pod(job_id), PodPhase.GONE))
    assert (await world.row(job_id)).status.value == "succeeded"
    return job_id


async def counts(bookings: BookingWorld) -> dict[str, int]:
    tables = ("reservations", "bookings", "booking_series", *BELONGINGS)
    return {table: (await bookings.rows(f"SELECT count(*) AS n FROM {table}"))[0]["n"] for table in tables}


async def ids(bookings: BookingWorld) -> set[str]:
    return {row["id"] for row in await bookings.rows("SELECT id FROM reservations")}
