"""Removing history in parts: beside work, by two at once, killed in the middle, past what must stay."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from reservation_core.adapters.postgres.history.retention import Retention
from reservation_core.domain.history.retention import HistoryKind
from reservation_core.usecases.history import retention
from reservation_core.usecases.history.retention import RetentionWalk
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import BookingWorld
from tests.integration.reservation_core.usecases.history.retention_world import (
    DAY,
    TINY,
    counts,
    ended_job,
    ids,
    look,
    pass_time,
    summed,
)


async def test_what_must_stay_is_passed_over_and_keeps_nothing_else(
    bookings: BookingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    jobs = [await ended_job(bookings) for _ in range(7)]
    await summed(bookings)
    for job_id in jobs[:5]:
        await bookings.rows("INSERT INTO usage_pending VALUES (:id) RETURNING reservation_id", id=job_id)
    await bookings.time.go_on(500 * DAY)
    walk = RetentionWalk()
    await look(bookings, walk=walk)
    assert await ids(bookings) == set(jobs[:5])
    await summed(bookings)
    await look(bookings, walk=walk)
    assert await ids(bookings) == set()


async def test_what_can_not_be_removed_keeps_nothing_else(
    bookings: BookingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended_job(bookings)
    await summed(bookings)
    await bookings.time.go_on(500 * DAY)
    monkeypatch.setattr(Retention, "make_event_partitions", failing)
    monkeypatch.setattr(Retention, "remove_reservations", failing)
    with pytest.raises(ExceptionGroup) as failed:
        await look(bookings)
    assert [str(error) for error in failed.value.exceptions] == ["not now", "not now"]
    left = await counts(bookings)
    assert (left["reservations"], left["pod_logs"]) == (1, 0)
    monkeypatch.undo()
    monkeypatch.setattr(Retention, "remove_reservations", failing)
    with pytest.raises(RuntimeError, match="not now"):
        await look(bookings)


async def failing(*_: object) -> None:
    raise RuntimeError("not now")


async def test_whoever_is_killed_in_the_middle_leaves_whole_jobs(
    bookings: BookingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost before a part is committed, each time at another statement of it."""
    monkeypatch.setattr(retention, "BATCH", 1)
    jobs = {await ended_job(bookings) for _ in range(3)}
    await summed(bookings)
    await bookings.time.go_on(500 * DAY)
    real = Retention._run
    whole = "SELECT count(*) AS n FROM reservations WHERE id NOT IN (SELECT reservation_id FROM allocations)"

    for name in (
        "remove_allocations_of",
        "remove_pod_logs_of",
        "remove_bookings_of",
        "remove_reservations",
        "note_removed",
    ):

        async def run(self: Retention, called: str, name: str = name, **values: Any) -> Any:
            answer = await real(self, called, **values)
            if called == name and (called != "note_removed" or values["kind"] == "jobs"):
                await self._connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            return answer

        with monkeypatch.context() as killed:
            killed.setattr(Retention, "_run", run)
            with pytest.raises(Exception):  # noqa: B017, PT011 -- the lost connection, however it is told
                await look(bookings)
        assert await ids(bookings) == jobs
        assert (await bookings.rows(whole))[0]["n"] == 0
    assert (await look(bookings)).removed[HistoryKind.JOBS] == 3
    [state] = await bookings.rows("SELECT removed FROM retention_state WHERE kind = 'jobs'")
    assert state["removed"] == 3


async def test_two_that_remove_at_once_count_everything_once(
    bookings: BookingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    for _ in range(6):
        await ended_job(bookings)
    await summed(bookings)
    await bookings.time.go_on(500 * DAY)
    for _ in range(3):
        await asyncio.gather(look(bookings), look(bookings))
    assert await ids(bookings) == set()
    [state] = await bookings.rows("SELECT removed FROM retention_state WHERE kind = 'jobs'")
    assert state["removed"] == 6


async def test_work_goes_on_beside_it(bookings: BookingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    old = [await ended_job(bookings) for _ in range(6)]
    await summed(bookings)
    await pass_time(bookings, 500 * DAY)

    async def work() -> list[str]:
        return [await bookings.world.submitted(duration=60) for _ in range(10)]

    async def remove() -> None:
        for _ in range(3):
            await look(bookings, TINY)

    fresh, _ = await asyncio.gather(work(), remove())
    await bookings.world.plan()
    assert await ids(bookings) == set(fresh)
    assert not set(old) & set(fresh)


async def test_more_than_one_part_is_removed_in_one_look_but_not_without_bound(
    bookings: BookingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "PARTS", 3)
    async with bookings.world.uow() as uow:
        await uow.reservations.submit([bookings.world.new(key=f"k{number}") for number in range(10)], START)
    await bookings.time.go_on(2 * DAY)
    assert (await look(bookings)).removed == {HistoryKind.IDEMPOTENCY: 6}
    assert (await look(bookings)).removed == {HistoryKind.IDEMPOTENCY: 4}
