"""Removal of old rows, and all that stays: by the clock, by what is open, and by what is not summed up."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.history.retention import HistoryKind
from reservation_core.domain.model import PodPhase
from reservation_core.ports.jobs.pod_logs import KeptLog
from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.usecases.jobs.arrays import RestingArrays, settle_arrays
from reservation_core.usecases.jobs.visible_jobs import view_visible
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld
from tests.integration.reservation_core.usecases.history.retention_world import (
    BELONGINGS,
    DAY,
    FOR_EVER,
    RULES,
    TINY,
    counts,
    ended_job,
    ids,
    look,
    pass_time,
    summed,
)
from tests.integration.reservation_core.usecases.world import pod


async def test_a_job_goes_when_it_is_old_with_all_that_belongs_to_it(bookings: BookingWorld) -> None:
    job_id = await ended_job(bookings)
    await summed(bookings)
    finished_at = (await bookings.world.row(job_id)).finished_at
    assert finished_at is not None
    await bookings.time.set(finished_at + 400 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings)).removed
    await bookings.time.go_on(timedelta(seconds=1))
    assert (await look(bookings)).removed == {HistoryKind.JOBS: 1}
    left = await counts(bookings)
    assert {left[table] for table in ("reservations", *BELONGINGS)} == {0}
    assert (await look(bookings)).removed == {}
    [state] = await bookings.rows("SELECT removed, oldest_at FROM retention_state WHERE kind = 'jobs'")
    assert state == {"removed": 1, "oldest_at": None}


async def test_an_element_that_was_removed_waits_for_nothing(bookings: BookingWorld) -> None:
    """Its array goes on: it does not become an element that has not entered the queue."""
    world = bookings.world
    array_id = await world.submitted(array={"size": 2, "parallel": 1})
    await settle_arrays(world.uow, world.clock, RestingArrays())
    await world.plan()
    await world.operate()
    await world.see(world.cluster.show(pod(f"{array_id}.0"), PodPhase.RUNNING, started_at=world.clock.now()))
    await pass_time(bookings, HOUR)
    await world.see(world.cluster.show(pod(f"{array_id}.0"), PodPhase.FINISHED, started_at=START, exit_code=0))
    await world.operate()
    await world.see(world.cluster.show(pod(f"{array_id}.0"), PodPhase.GONE))
    await summed(bookings)
    await bookings.time.go_on(401 * DAY)
    assert (await look(bookings)).removed == {HistoryKind.JOBS: 1}
    async with world.uow() as uow:
        with pytest.raises(NotFoundError, match="You have no job"):
            await view_visible(uow, world.who, f"{array_id}.0")
        assert (await view_visible(uow, world.who, f"{array_id}.1")).reservation.element is not None


async def test_for_ever_is_for_ever(bookings: BookingWorld) -> None:
    job_id = await ended_job(bookings)
    await summed(bookings)
    await bookings.time.go_on(100 * 365 * DAY)
    assert (await look(bookings, FOR_EVER)).removed == {}
    assert (await look(bookings, replace(FOR_EVER, allocations=DAY))).removed == {HistoryKind.ALLOCATIONS: 1}
    assert await ids(bookings) == {job_id}


async def test_a_job_stays_as_long_as_its_rows_of_the_ledger(bookings: BookingWorld) -> None:
    await ended_job(bookings)
    await summed(bookings)
    await bookings.time.go_on(500 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings, replace(RULES, allocations=None))).removed
    assert HistoryKind.JOBS not in (await look(bookings, replace(RULES, allocations=600 * DAY))).removed


async def test_rows_of_the_ledger_may_go_sooner_than_their_jobs(bookings: BookingWorld) -> None:
    job_id = await ended_job(bookings)
    await summed(bookings)
    await bookings.time.go_on(30 * DAY)
    report = await look(bookings, replace(RULES, allocations=20 * DAY))
    assert report.removed == {HistoryKind.ALLOCATIONS: 1, HistoryKind.POD_LOGS: 1}
    left = await counts(bookings)
    assert (left["reservations"], left["allocations"], left["start_promises"]) == (1, 0, 0)
    assert await bookings.world.cards(job_id) == ()
    await bookings.time.go_on(400 * DAY)
    assert (await look(bookings)).removed == {HistoryKind.JOBS: 1}


async def test_what_is_open_stays_however_short_the_time(bookings: BookingWorld) -> None:
    world = bookings.world
    running = await world.ran(duration=3600)
    waiting = await world.submitted(gpus=2, nodes=2)
    await world.plan()
    ahead = await bookings.booked(START + 20 * DAY)
    before = await counts(bookings)
    await bookings.time.go_on(10 * DAY)
    for _ in range(3):
        await look(bookings, TINY)
    assert await ids(bookings) == {running, waiting, ahead.id}
    assert await counts(bookings) == before


async def test_quotas_of_a_week_and_cooldowns_keep_history(bookings: BookingWorld) -> None:
    job_id = await ended_job(bookings)
    await summed(bookings)
    await bookings.time.go_on(14 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings, TINY)).removed
    async with bookings.engine.begin() as connection:
        await connection.execute(
            text("INSERT INTO policies (cooldown, changed_at, changed_by) VALUES ('90 days', now(), 'root')")
        )
    await bookings.time.go_on(90 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings, TINY)).removed
    assert await ids(bookings) == {job_id}
    await bookings.time.go_on(2 * DAY)
    assert (await look(bookings, TINY)).removed[HistoryKind.JOBS] == 1


async def test_fair_shares_keep_history(bookings: BookingWorld) -> None:
    await ended_job(bookings)
    await summed(bookings)

    async def count_shares(half_life: timedelta) -> None:
        async with bookings.world.uow() as uow:
            await uow.usage.update_shares(half_life, bookings.time.at)

    await count_shares(30 * DAY)
    await bookings.time.go_on(299 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings, TINY)).removed
    await count_shares(30 * DAY)
    await bookings.time.go_on(2 * DAY)
    assert (await look(bookings, TINY)).removed[HistoryKind.JOBS] == 1


async def test_what_fair_shares_have_not_counted_stays(bookings: BookingWorld) -> None:
    async with bookings.world.uow() as uow:
        await uow.usage.update_shares(30 * DAY, bookings.time.at)
    await ended_job(bookings)
    await summed(bookings)
    await bookings.time.go_on(599 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings)).removed
    # After twenty half-lives without a count fair shares were switched off.
    await bookings.time.go_on(2 * DAY)
    assert (await look(bookings)).removed[HistoryKind.JOBS] == 1


async def test_what_is_not_in_the_sums_stays(bookings: BookingWorld) -> None:
    job_id = await ended_job(bookings)
    await bookings.time.go_on(500 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings)).removed
    await summed(bookings)
    async with bookings.engine.begin() as connection:
        await connection.execute(text("INSERT INTO usage_pending VALUES (:id) ON CONFLICT DO NOTHING"), {"id": job_id})
    assert HistoryKind.JOBS not in (await look(bookings)).removed
    assert HistoryKind.ALLOCATIONS not in (await look(bookings, replace(RULES, jobs=None))).removed
    await summed(bookings)
    assert (await look(bookings)).removed == {HistoryKind.JOBS: 1}


@pytest.mark.parametrize("pending", ["given_back", "usage_pending"])
async def test_the_database_refuses_to_remove_what_is_not_summed(bookings: BookingWorld, pending: str) -> None:
    job_id = await ended_job(bookings)
    await summed(bookings)
    async with bookings.engine.begin() as connection:
        with pytest.raises(Exception, match="closed"):
            async with connection.begin_nested():
                await connection.execute(text("DELETE FROM allocations"))
        await connection.execute(text("SELECT set_config('gpu_dev.retention', 'on', true)"))
        add = {
            "given_back": "INSERT INTO given_back (allocation_id, user_id) SELECT id, 1 FROM allocations",
            "usage_pending": f"INSERT INTO usage_pending VALUES ('{job_id}') ON CONFLICT DO NOTHING",
        }
        await connection.execute(text(add[pending]))
        with pytest.raises(Exception, match="closed"):
            async with connection.begin_nested():
                await connection.execute(text("DELETE FROM allocations"))


async def test_a_booking_goes_with_its_jobs_and_its_series(bookings: BookingWorld) -> None:
    booking = await bookings.booked(START + HOUR, 2 * HOUR)
    later = await bookings.booked(START + 395 * DAY, HOUR)
    await bookings.rows(
        "INSERT INTO booking_series (id, user_id, rule, time_zone, created_at) "
        "SELECT 'ser-a', user_id, 'x', 'UTC', created_at FROM reservations LIMIT 1 RETURNING id"
    )
    await bookings.rows(
        "UPDATE bookings SET series_id = 'ser-a', occurrence = 0 WHERE id = :id RETURNING id", id=booking.id
    )
    await bookings.at(START + HOUR)
    job_id = await bookings.world.ran(booking_id=booking.id, duration=600)
    await bookings.rows("UPDATE bookings SET started_job = :job WHERE id = :id RETURNING id", job=job_id, id=booking.id)
    await bookings.world.see(
        bookings.world.cluster.show(pod(job_id), PodPhase.FINISHED, started_at=bookings.time.at, exit_code=0)
    )
    await bookings.world.operate()
    await bookings.world.see(bookings.world.cluster.show(pod(job_id), PodPhase.GONE))
    await bookings.at(START + 3 * HOUR)
    assert (await bookings.booking(booking.id)).status.value == "ended"
    await summed(bookings)
    await bookings.time.set(START + 390 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings)).removed
    await bookings.time.set(START + 402 * DAY)
    assert (await look(bookings)).removed[HistoryKind.JOBS] == 2
    assert await ids(bookings) == {later.id}
    left = await counts(bookings)
    assert (left["bookings"], left["booking_series"]) == (1, 0)


async def test_a_booking_that_a_pod_may_still_use_stays(bookings: BookingWorld) -> None:
    booking = await bookings.booked(START + HOUR)
    await bookings.at(START + HOUR)
    await bookings.rows(
        "INSERT INTO admissions (booking_id, pod_uid, namespace, name, gpus, admitted_at, recorded_at) "
        "VALUES (:id, 'u', 'n', 'p', 1, :at, :at) RETURNING pod_uid",
        id=booking.id,
        at=bookings.time.at,
    )
    await bookings.at(START + 3 * HOUR)
    await summed(bookings)
    await bookings.time.set(START + 500 * DAY)
    assert HistoryKind.JOBS not in (await look(bookings)).removed
    await bookings.rows("UPDATE admissions SET ended_at = :at RETURNING pod_uid", at=START + 2 * HOUR)
    await summed(bookings)
    assert (await look(bookings)).removed[HistoryKind.JOBS] == 1


async def test_dead_letters_keys_and_kept_logs_go_in_their_time(bookings: BookingWorld) -> None:
    world = bookings.world
    job_id = await world.submitted()
    async with world.uow() as uow:
        await uow.reservations.submit([world.new(key="k")], bookings.time.at)
        await uow.pod_logs.keep([KeptLog(pod(job_id), b"the end\n", complete=True)], bookings.time.at)
        await uow.queue.send(QueueName.NOTIFICATIONS, [{"v": 1}])
        [message] = await uow.queue.read(QueueName.NOTIFICATIONS, visibility=DAY, limit=1)
        assert isinstance(message, QueuedMessage)
        await uow.queue.bury(QueueName.NOTIFICATIONS, message, "no")
    # The queue has its own clock.
    await bookings.rows("UPDATE pgmq.q_notifications_dlq SET enqueued_at = :at RETURNING msg_id", at=bookings.time.at)
    removed = []
    for age in (DAY, DAY + HOUR, 7 * DAY, 7 * DAY + HOUR, 30 * DAY, 30 * DAY + HOUR):
        await bookings.time.set(START + age)
        removed.append({kind.value: count for kind, count in (await look(bookings)).removed.items()})
    assert removed == [{}, {"idempotency": 1}, {}, {"pod_logs": 1}, {}, {"dead_letters": 1}]
