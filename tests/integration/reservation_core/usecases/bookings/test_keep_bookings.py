"""Bookings as time passes, on a real database whose clock is set."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.contracts.bookings import BookingChange
from reservation_core.domain.changes import StartRefused
from reservation_core.domain.errors import AlreadyFinalError, NotBookableError
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import Reason
from reservation_core.domain.notices.kinds import NoticeChannel
from reservation_core.domain.notices.words import notice_of
from reservation_core.domain.statuses import BookingReason, BookingStatus, JobStatus, ReasonCode
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.bookings.change import change_booking
from reservation_core.usecases.bookings.keep_bookings import keep_bookings
from reservation_core.usecases.people import notice_targets
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import GRACE, HOUR, MINUTE, BookingWorld

NINE = START + 24 * HOUR


async def test_a_booking_lives_by_the_databases_clock(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE)
    assert (await bookings.at(NINE - MINUTE)).changed == 1  # the warning
    assert (await bookings.at(NINE - MINUTE)).changed == 0
    await bookings.at(NINE)
    row = await bookings.booking(made.id)
    assert (row.status, row.activated_at, row.why.code) == (BookingStatus.ACTIVE, NINE, BookingReason.IN_SLOT)
    assert await bookings.taken(made.id) == [(NINE, NINE + HOUR, False)]
    await bookings.at(NINE + HOUR)
    row = await bookings.booking(made.id)
    assert (row.status, row.finished_at) == (BookingStatus.ENDED, NINE + HOUR)
    assert await bookings.taken(made.id) == [(NINE, NINE + HOUR, True)]
    assert await bookings.kinds(made.id) == [
        "booking_confirmed",
        "booking_starting_soon",
        "booking_started",
        "booking_ended",
    ]


async def test_a_missed_run_is_made_up_by_the_next(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, workload={"command": ["true"]})
    await bookings.at(NINE + 5 * HOUR)
    assert (await bookings.booking(made.id)).status is BookingStatus.ENDED
    assert await bookings.kinds(made.id) == ["booking_confirmed", "booking_started", "booking_ended"]
    assert (await bookings.booking(made.id)).jobs == ()


async def test_its_workload_becomes_a_job_within_it_in_the_same_transaction(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, gpus=2, title="night run", workload={"command": ["python", "train.py"]})
    await bookings.at(NINE)
    row = await bookings.booking(made.id)
    [job_id] = row.jobs
    assert row.started_job == job_id
    job = await bookings.world.row(job_id)
    assert (job.status, job.gpus, job.gpu_type, job.duration, job.name) == (
        JobStatus.QUEUED,
        2,
        "h100",
        HOUR,
        "night run",
    )
    assert job.workload.command == ("python", "train.py")
    await bookings.look()
    assert (await bookings.booking(made.id)).jobs == (job_id,)


async def test_a_short_booking_that_is_extended_is_given_up_as_any_other(bookings: BookingWorld) -> None:
    bookings.keeping = GRACE
    made = await bookings.booked(NINE, 20 * MINUTE)
    await bookings.at(NINE)
    await bookings.at(NINE + 16 * MINUTE)
    assert "no_show_warning" not in await bookings.kinds(made.id)
    async with bookings.world.uow() as uow:
        await change_booking(uow, bookings.world.who, made.id, BookingChange(duration=4 * HOUR), None)
    await bookings.look()
    assert (await bookings.kinds(made.id))[-1] == "no_show_warning"
    await bookings.at(NINE + 32 * MINUTE)
    assert (await bookings.booking(made.id)).status is BookingStatus.RELEASED


async def test_nobody_came_and_the_rest_goes_back_after_a_warning(bookings: BookingWorld) -> None:
    bookings.keeping = GRACE
    made = await bookings.booked(NINE, 4 * HOUR, gpus=2)
    await bookings.at(NINE)
    assert (await bookings.booking(made.id)).release_at == NINE + 30 * MINUTE
    await bookings.at(NINE + 15 * MINUTE)
    assert (await bookings.told(made.id, "no_show_warning"))["release_at"] == (NINE + 30 * MINUTE).isoformat()
    await bookings.at(NINE + 30 * MINUTE)
    row = await bookings.booking(made.id)
    assert (row.status, row.why.code) == (BookingStatus.RELEASED, BookingReason.NOT_USED)
    assert await bookings.taken(made.id) == [(NINE, NINE + 30 * MINUTE, True)] * 2
    again = await bookings.booked(NINE + 30 * MINUTE, HOUR, gpus=2, node="a")
    assert {card.gpu_id for card in again.cards} | {card.gpu_id for card in made.cards} == {
        card.gpu_id for card in (*again.cards, *made.cards)
    }


async def within(bookings: BookingWorld, booking_id: str) -> str:
    """A job that waits within a booking."""
    return await bookings.world.submitted(booking_id=booking_id)


async def running_within(bookings: BookingWorld, booking_id: str) -> str:
    """A job that runs within a booking, on its first card."""
    job_id = await within(bookings, booking_id)
    booking = await bookings.booking(booking_id)
    now = bookings.time.at
    await bookings.rows(
        "WITH r AS (UPDATE reservations SET status = 'running', attempt = 1, started_at = :now, ends_at = :end, "
        "range_end = :end WHERE id = :j), forgotten AS (DELETE FROM wait_estimates WHERE reservation_id = :j) "
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, booking_id) "
        "VALUES (:j, 1, :gpu, 0, tstzrange(:now, :end), true, :now, :b) RETURNING id",
        j=job_id,
        b=booking_id,
        gpu=booking.cards[0].gpu_id,
        now=now,
        end=booking.span.end,
    )
    return job_id


async def test_a_booking_in_which_a_job_ran_is_kept(bookings: BookingWorld) -> None:
    bookings.keeping = GRACE
    made = await bookings.booked(NINE)
    await bookings.at(NINE)
    await bookings.time.go_on(5 * MINUTE)
    await running_within(bookings, made.id)
    await bookings.at(NINE + 10 * MINUTE)
    assert (await bookings.booking(made.id)).used_at == NINE + 5 * MINUTE
    await bookings.at(NINE + 50 * MINUTE)
    assert (await bookings.booking(made.id)).status is BookingStatus.ACTIVE
    assert "no_show_warning" not in await bookings.kinds(made.id)


async def test_a_booking_is_not_released_under_a_pod_that_is_still_ending(bookings: BookingWorld) -> None:
    """A start that failed never used it, but its cards come back only when the pod is gone."""
    bookings.keeping = GRACE
    made = await bookings.booked(NINE)
    await bookings.at(NINE)
    job_id = await running_within(bookings, made.id)
    await bookings.rows(
        "UPDATE reservations SET status = 'ending', outcome = 'failed', started_at = NULL WHERE id = :j RETURNING id",
        j=job_id,
    )
    await bookings.at(NINE + 15 * MINUTE)
    await bookings.at(NINE + 40 * MINUTE)
    assert (await bookings.booking(made.id)).status is BookingStatus.ACTIVE
    await bookings.rows(
        "UPDATE allocations SET held = false, released_at = :now, during = tstzrange(lower(during), :now) "
        "WHERE reservation_id = :j RETURNING id",
        j=job_id,
        now=bookings.time.at,
    )
    await bookings.look()
    await bookings.at(NINE + 56 * MINUTE)
    assert (await bookings.booking(made.id)).status is BookingStatus.RELEASED


async def test_jobs_end_with_their_booking(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE)
    await bookings.at(NINE)
    runs, waits = await running_within(bookings, made.id), await within(bookings, made.id)
    report = await bookings.at(NINE + HOUR)
    assert report.ended_jobs == 2
    assert (await bookings.booking(made.id)).status is BookingStatus.ENDED
    waiting, running = await bookings.world.row(waits), await bookings.world.row(runs)
    assert (waiting.status, waiting.reason.code) == (JobStatus.EXPIRED, "booking_over")
    assert (running.status, running.outcome) == (JobStatus.ENDING, JobStatus.EXPIRED)
    # The card is held until the pod is known to be gone, whatever the calendar says.
    assert [
        row["held"] for row in await bookings.rows("SELECT held FROM allocations WHERE booking_id IS NOT NULL")
    ] == [True]


async def test_who_waits_in_a_released_booking_is_told(bookings: BookingWorld) -> None:
    bookings.keeping = GRACE
    made = await bookings.booked(NINE)
    await bookings.at(NINE)
    waits = await within(bookings, made.id)
    await bookings.at(NINE + 15 * MINUTE)
    await bookings.at(NINE + 30 * MINUTE)
    job = await bookings.world.row(waits)
    assert (await bookings.booking(made.id)).status is BookingStatus.RELEASED
    assert (job.status, job.reason.code) == (JobStatus.CANCELLED, "booking_over")
    assert "released" in job.reason.detail


async def test_cards_that_are_still_held_at_the_start_are_told_and_not_given_twice(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE)
    late = await bookings.world.submitted()
    await bookings.rows(
        "WITH r AS (UPDATE reservations SET status = 'ending', outcome = 'expired', attempt = 1 WHERE id = :j) "
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
        "VALUES (:j, 1, :gpu, 0, tstzrange(:s, :e), true, :s) RETURNING id",
        j=late,
        gpu=made.cards[0].gpu_id,
        s=NINE - HOUR,
        e=NINE,
    )
    await bookings.at(NINE)
    assert (await bookings.told(made.id, "start_promise_missed"))["late"] == [late]


@pytest.mark.parametrize("runs", [2, 5])
async def test_several_runs_at_once_do_everything_once(bookings: BookingWorld, runs: int) -> None:
    made = [await bookings.booked(NINE, workload={"command": ["true"]}) for _ in range(4)]
    for when in (NINE - MINUTE, NINE, NINE + 55 * MINUTE, NINE + HOUR):
        await bookings.time.set(when)
        await asyncio.gather(*(bookings.look() for _ in range(runs)))
    for booking in made:
        row = await bookings.booking(booking.id)
        assert (row.status, len(row.jobs)) == (BookingStatus.ENDED, 1)
        assert await bookings.kinds(booking.id) == [
            "booking_confirmed",
            "booking_starting_soon",
            "booking_started",
            "booking_ending_soon",
            "booking_ended",
        ]


@pytest.mark.parametrize("wrong", [timedelta(minutes=5), timedelta(minutes=-5)])
async def test_a_components_own_clock_changes_nothing(bookings: BookingWorld, wrong: timedelta) -> None:
    made = await bookings.booked(NINE)
    for when, status in (
        (NINE - 4 * MINUTE, BookingStatus.CONFIRMED),
        (NINE, BookingStatus.ACTIVE),
        (NINE + 56 * MINUTE, BookingStatus.ACTIVE),
        (NINE + HOUR, BookingStatus.ENDED),
    ):
        await bookings.time.set(when)
        bookings.world.clock.at = when + wrong
        await keep_bookings(bookings.world.uow, bookings.ids, bookings.keeping)
        assert (await bookings.booking(made.id)).status is status


async def test_cancelled_while_being_started(bookings: BookingWorld) -> None:
    """In either order it is cancelled in the end, nothing of it holds a card, and what it started is cancelled."""
    made = [await bookings.booked(NINE, workload={"command": ["true"]}) for _ in range(4)]
    await bookings.time.set(NINE)

    async def cancel(booking_id: str) -> None:
        async with bookings.world.uow() as uow:
            await cancel_booking(uow, bookings.world.who, booking_id, "this", None)

    await asyncio.gather(*(cancel(booking.id) for booking in made), bookings.look(), bookings.look())
    await bookings.look()
    for booking in made:
        row = await bookings.booking(booking.id)
        kinds = await bookings.kinds(booking.id)
        assert row.status is BookingStatus.CANCELLED
        assert kinds[-1] == "booking_cancelled"
        assert kinds.count("booking_started") == len(row.jobs) <= 1
        for job_id in row.jobs:
            assert (await bookings.world.row(job_id)).status is JobStatus.CANCELLED
    assert await bookings.rows("SELECT id FROM allocations WHERE released_at IS NULL") == []


async def test_extended_while_it_ends(bookings: BookingWorld) -> None:
    """Either it was extended in time and goes on, or it was over: never something in between."""
    made = [await bookings.booked(NINE) for _ in range(4)]
    await bookings.at(NINE)
    runs = await running_within(bookings, made[0].id)
    await bookings.time.set(NINE + HOUR)

    async def extend(booking_id: str) -> bool:
        async with bookings.world.uow() as uow:
            try:
                await change_booking(uow, bookings.world.who, booking_id, BookingChange(duration=2 * HOUR), None)
            except (AlreadyFinalError, NotBookableError):
                return False  # it was over, or a pod in it has had its time
        return True

    outcomes = await asyncio.gather(bookings.look(), *(extend(booking.id) for booking in made), bookings.look())
    extended = outcomes[1:-1]
    for booking, was_extended in zip(made, extended, strict=True):
        row = await bookings.booking(booking.id)
        taken = await bookings.taken(booking.id)
        if was_extended:
            assert (row.status, row.span.end) == (BookingStatus.ACTIVE, NINE + 2 * HOUR)
            assert taken == [(NINE, NINE + 2 * HOUR, False)]
        else:
            assert (row.status, row.span.end) == (BookingStatus.ENDED, NINE + HOUR)
            assert taken == [(NINE, NINE + HOUR, True)]
    # The job's own end had come, however that went.
    assert (await bookings.world.row(runs)).status in (JobStatus.ENDING, JobStatus.RUNNING)
    await bookings.at(NINE + 2 * HOUR)
    assert {(await bookings.booking(booking.id)).status for booking in made} == {BookingStatus.ENDED}


async def test_a_job_that_came_into_a_booking_as_it_was_cancelled_ends_with_it(bookings: BookingWorld) -> None:
    world = bookings.world
    made = await bookings.booked(NINE)
    async with world.uow() as submission:
        new = world.new(booking_id=made.id)
        [answer] = await submission.reservations.submit([new], START)
        assert answer.refusal is None
        async with world.uow() as uow:
            await cancel_booking(uow, world.who, made.id, "this", None)
    job = answer.reservation_id
    assert (await world.row(job)).status is JobStatus.QUEUED
    assert (await bookings.look()).ended_jobs == 1
    row = await world.row(job)
    assert (row.status, row.reason.code) == (JobStatus.CANCELLED, ReasonCode.BOOKING_OVER)


async def told_people(bookings: BookingWorld) -> list[tuple[str, str, str]]:
    """Kind, subject and text of what is to be delivered to alice."""
    async with bookings.world.uow() as uow:
        messages = await uow.queue.read(QueueName.NOTIFICATIONS, visibility=MINUTE, limit=100)
        notices = []
        for message in messages:
            occasion = await uow.notices.occasion(message.body["event"])
            assert occasion is not None
            notice = notice_of(*occasion, user="alice", delivery="x")
            notices.append((occasion[0].event, notice.subject, notice.text))
    return notices


async def hears_of(bookings: BookingWorld) -> None:
    """Alice is told at a webhook."""
    async with bookings.world.uow() as uow:
        await notice_targets.create(
            uow, bookings.world.who, channel=NoticeChannel.WEBHOOK, address="https://hooks.example/x", name=None,
            ids=bookings.ids, now=bookings.time.at,
        )  # fmt: skip


async def test_a_workload_that_is_refused_at_the_start_is_told(bookings: BookingWorld) -> None:
    """Its owner hears of it, the booking says why and goes on."""
    await hears_of(bookings)
    made = await bookings.booked(NINE, gpus=2, workload={"command": ["true"]})
    # A card of it is gone by then.
    await bookings.rows("DELETE FROM allocations WHERE gpu_id = :id RETURNING id", id=made.cards[0].gpu_id)
    await bookings.at(NINE)
    row = await bookings.booking(made.id)
    assert (row.status, row.why.code, row.jobs) == (BookingStatus.ACTIVE, BookingReason.WORKLOAD_REFUSED, ())
    assert "no room for 2 h100 GPUs on one node" in row.why.detail
    assert (await bookings.kinds(made.id))[-2:] == ["booking_started", "workload_refused"]
    [(subject, text)] = [message[1:] for message in await told_people(bookings) if message[0] == "workload_refused"]
    assert made.id in subject
    assert "could not start" in text
    assert "no room for 2 h100 GPUs on one node" in text
    # Extending it does not hide what happened.
    async with bookings.world.uow() as uow:
        await change_booking(uow, bookings.world.who, made.id, BookingChange(duration=2 * HOUR), None)
    assert (await bookings.booking(made.id)).why.code is BookingReason.WORKLOAD_REFUSED
    assert (await bookings.look()).changed == 0


async def test_a_workload_that_failed_before_it_ran_is_the_bookings_reason(bookings: BookingWorld) -> None:
    """Its owner hears of it once: by the job's own record."""
    await hears_of(bookings)
    made = await bookings.booked(NINE, workload={"command": ["true"], "image": "nowhere/none"})
    await bookings.at(NINE)
    [job] = (await bookings.booking(made.id)).jobs
    async with bookings.world.uow() as uow:
        row = (await uow.reservations.lock([job]))[job]
        change = decide(
            replace(row, status=JobStatus.STARTING, attempt=1),
            StartRefused(Reason(ReasonCode.IMAGE_PULL_FAILED, "nowhere/none can't be pulled.")),
            bookings.time.at,
        )
        assert change is not None
    await bookings.rows(
        "WITH gone AS (DELETE FROM wait_estimates WHERE reservation_id = :j) UPDATE reservations "
        "SET status = 'failed', attempt = 1, finished_at = :now, reason_code = :code, reason = :reason "
        "WHERE id = :j RETURNING id",
        j=job,
        now=bookings.time.at,
        code=change.after.reason.code.value,
        reason=change.after.reason.detail,
    )
    await bookings.look()
    booking = await bookings.booking(made.id)
    assert (booking.status, booking.why.code) == (BookingStatus.ACTIVE, BookingReason.WORKLOAD_REFUSED)
    assert "nowhere/none can't be pulled." in booking.why.detail
    assert (await bookings.told(made.id, "workload_failed"))["job"] == job
    assert (await bookings.look()).changed == 0
    assert [message[0] for message in await told_people(bookings)] == ["booking_confirmed"]


async def test_no_workload_starts_for_somebody_who_is_disabled(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, workload={"command": ["true"]})
    await bookings.rows("UPDATE users SET disabled_at = :now WHERE name = 'alice' RETURNING id", now=START)
    await bookings.at(NINE)
    row = await bookings.booking(made.id)
    assert (row.status, row.why.code, row.jobs) == (BookingStatus.ACTIVE, BookingReason.WORKLOAD_REFUSED, ())
    assert "disabled" in row.why.detail
