"""How long jobs ran: only those that ended by themselves, the newest of them, in the order of their ends."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.planning.planning import Planning
from reservation_core.domain.planning.run_times import OWN_ENDS, RunTime
from reservation_core.domain.statuses import ReasonCode
from tests.integration.reservation_core.adapters.postgres.conftest import HOUR, NOW, Seed

MINUTE = timedelta(minutes=1)


async def run_times(engine: AsyncEngine, since: datetime | None = None, limit: int = 100) -> list[RunTime]:
    async with engine.begin() as connection:
        return await Planning(connection).run_times(since, limit)


async def ended(
    seed: Seed,
    user: int,
    *,
    at: datetime = NOW,
    ran: timedelta | None = MINUTE,
    reason: str = "completed",
    **fields: object,
) -> None:
    """A job that ended then, after its pods ran for so long (None: they never did)."""
    number = await seed.run("SELECT count(*) FROM reservations")
    started = None if ran is None else at - ran
    values = {"started_at": started, "finished_at": at, "reason_code": reason, "attempt": 1}
    await seed.job(f"job-{number}", user, "succeeded", **values | fields)


def ends(found: Sequence[RunTime]) -> list[timedelta]:
    return [run.ended_at - NOW for run in found]


async def test_what_is_told_of_a_job(seed: Seed, engine: AsyncEngine) -> None:
    user = await seed.user()
    await ended(seed, user, ran=90 * MINUTE, gpus=4, nodes=2, gpu_type=None, duration=2 * HOUR)
    assert await run_times(engine) == [RunTime(user, 4, 2, None, 7200.0, 5400.0, NOW)]


@pytest.mark.parametrize("reason", ReasonCode)
async def test_only_own_ends_count(seed: Seed, engine: AsyncEngine, reason: ReasonCode) -> None:
    await ended(seed, await seed.user(), reason=reason)
    assert len(await run_times(engine)) == (reason in OWN_ENDS)


async def test_without_a_run_there_is_no_run_time(seed: Seed, engine: AsyncEngine) -> None:
    """Nor after a step of the clock, nor for a booking or what still runs; a booking bounds the jobs within it."""
    user = await seed.user()
    await ended(seed, user, ran=None, reason="cancelled_by_user")
    await ended(seed, user, ran=-MINUTE)
    booked = {"started_at": NOW - HOUR, "finished_at": NOW, "reason_code": "completed"}
    await seed.job("bkg-1", user, "ended", kind="booking", **booked)
    await ended(seed, user, booking_id="bkg-1")
    await seed.job("job-runs", user, "running", started_at=NOW, ends_at=NOW + HOUR, attempt=1)
    assert await run_times(engine) == []


async def test_the_newest_come_in_the_order_of_their_ends(seed: Seed, engine: AsyncEngine) -> None:
    user = await seed.user()
    for minutes in (3, 1, 4, 2):
        await ended(seed, user, at=NOW + minutes * MINUTE)
    assert ends(await run_times(engine)) == [MINUTE, 2 * MINUTE, 3 * MINUTE, 4 * MINUTE]
    assert ends(await run_times(engine, limit=2)) == [3 * MINUTE, 4 * MINUTE]
    assert ends(await run_times(engine, NOW + 2 * MINUTE)) == [3 * MINUTE, 4 * MINUTE]
    assert ends(await run_times(engine, NOW + 4 * MINUTE)) == []
    # The limit bounds what is looked at: a million jobs that were cancelled while they waited are not walked through.
    for minutes in (5, 6):
        await ended(seed, user, at=NOW + minutes * MINUTE, ran=None, reason="cancelled_by_user")
    assert ends(await run_times(engine, limit=3)) == [4 * MINUTE]
