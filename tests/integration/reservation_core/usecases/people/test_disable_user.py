"""What becomes of what somebody has who is disabled, on a real database whose clock is set."""

import asyncio
from datetime import timedelta

import pytest

from reservation_core.contracts.bookings import BookingChange, BookingCreate
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.errors import ForbiddenError, NotFoundError, UnknownCallerError
from reservation_core.domain.model import PodPhase, Reason
from reservation_core.domain.statuses import BookingReason, BookingStatus, JobStatus, ReasonCode
from reservation_core.ports.people.identities import UserRecord
from reservation_core.usecases.bookings.book_series import book_series
from reservation_core.usecases.bookings.change import change_booking
from reservation_core.usecases.jobs.submit import submit
from reservation_core.usecases.people.disable_user import (
    SETTLES,
    StillHeld,
    cancel_belongings,
    disable,
    left,
    settle_disabled,
)
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.world import pod

NINE = START + 24 * HOUR


class Lab:
    """Alice has a job that runs, one that waits, bookings in their slot and ahead, and a request on the waitlist."""

    def __init__(self, bookings: BookingWorld) -> None:
        self.bookings = bookings
        self.world = bookings.world

    async def fill(self) -> None:
        bookings = self.bookings
        others = await bookings.person("bob")
        self.slot = await bookings.booked(NINE, 4 * HOUR, node="a", gpus=2)
        self.ahead = await bookings.booked(NINE + 5 * HOUR, HOUR, workload={"command": ["true"]})
        self.bobs = await bookings.booked(NINE, 4 * HOUR, node="b", gpus=2, who=others)
        self.request = await bookings.booked(NINE + HOUR, HOUR, gpus=1, wait=True)
        assert self.request.status is BookingStatus.WAITING
        await bookings.at(NINE)
        self.waits = await self.world.submitted()
        self.within = await self.world.submitted(booking_id=self.slot.id)
        self.runs = await self.world.submitted(booking_id=self.slot.id)
        await bookings.rows(
            "WITH r AS (UPDATE reservations SET status = 'running', attempt = 1, started_at = :now, ends_at = :end, "
            "range_end = :end WHERE id = :j), forgotten AS (DELETE FROM wait_estimates WHERE reservation_id = :j) "
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, booking_id) "
            "VALUES (:j, 1, :gpu, 0, tstzrange(:now, :end), true, :now, :b) RETURNING id",
            j=self.runs,
            b=self.slot.id,
            gpu=self.slot.cards[0].gpu_id,
            now=NINE,
            end=NINE + 4 * HOUR,
        )

    async def disable(self, *, end: bool = False) -> tuple[UserRecord, int, StillHeld]:
        root = await self.bookings.root()
        async with self.world.uow() as uow:
            user = await disable(uow, root, "alice", end=end)
        cancelled = await cancel_belongings(self.world.uow, user, root.user, end=end)
        async with self.world.uow() as uow:
            return user, cancelled, await left(uow, user)

    async def status(self, job_id: str) -> JobStatus:
        return (await self.world.row(job_id)).status

    async def booking_status(self, booking_id: str) -> BookingStatus:
        return (await self.bookings.booking(booking_id)).status


@pytest.fixture
async def lab(bookings: BookingWorld) -> Lab:
    made = Lab(bookings)
    await made.fill()
    return made


async def test_what_waits_is_cancelled_and_what_runs_or_is_booked_is_listed(lab: Lab) -> None:
    _, cancelled, remains = await lab.disable()
    assert cancelled == 3
    for job in (lab.waits, lab.within):
        row = await lab.world.row(job)
        assert (row.status, row.reason.code) == (JobStatus.CANCELLED, ReasonCode.CANCELLED_BY_ADMIN)
        assert row.reason.detail == "Cancelled by root. The user alice is disabled."
    request = await lab.bookings.booking(lab.request.id)
    assert (request.status, request.why.code) == (BookingStatus.CANCELLED, BookingReason.CANCELLED_BY_ADMIN)
    assert request.why.detail == "Cancelled by root. The user alice is disabled."
    assert [(belonging.id, belonging.status) for belonging in remains.belongings] == [
        (lab.slot.id, "active"),
        (lab.ahead.id, "confirmed"),
        (lab.runs, "running"),
    ]
    assert remains.in_all == 3
    assert await lab.booking_status(lab.bobs.id) is BookingStatus.ACTIVE
    # Booked time stays, but no workload begins.
    await lab.bookings.at(NINE + 5 * HOUR)
    ahead = await lab.bookings.booking(lab.ahead.id)
    assert (ahead.status, ahead.why.code, ahead.jobs) == (BookingStatus.ACTIVE, BookingReason.WORKLOAD_REFUSED, ())


async def test_everything_ends_at_one_word(lab: Lab) -> None:
    _, cancelled, remains = await lab.disable(end=True)
    assert cancelled == 6
    # The pod has its grace: its card is held until it is gone.
    assert [(belonging.id, belonging.status) for belonging in remains.belongings] == [(lab.runs, "ending")]
    for booking in (lab.slot, lab.ahead, lab.request):
        assert await lab.booking_status(booking.id) is BookingStatus.CANCELLED
    assert await lab.booking_status(lab.bobs.id) is BookingStatus.ACTIVE
    open_rows = "SELECT reservation_id FROM allocations WHERE released_at IS NULL AND booking_id IS NULL"
    assert {row["reservation_id"] for row in await lab.bookings.rows(open_rows)} == {lab.bobs.id}


async def test_it_can_be_ended_later_and_twice(lab: Lab) -> None:
    first, _, _ = await lab.disable()
    again, cancelled, _ = await lab.disable(end=True)
    assert again == first
    assert cancelled == 3
    assert (await lab.disable(end=True))[1] == 0


async def test_more_than_a_batch(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reservation_core.usecases.people.disable_user._BATCH", 2)
    _, cancelled, remains = await lab.disable(end=True)
    assert (cancelled, remains.in_all) == (6, 1)


UNSETTLED = "SELECT id FROM users WHERE disabled_at IS NOT NULL AND settled_at IS NULL"


async def disabled(bookings: BookingWorld, *, end: bool = False) -> None:
    """Alice, who has whatever she has."""
    root = await bookings.root()
    async with bookings.world.uow() as uow:
        user = await disable(uow, root, "alice", end=end)
    await cancel_belongings(bookings.world.uow, user, root.user, end=end)


@pytest.mark.parametrize("end", [False, True])
async def test_what_was_on_its_way_in_never_starts_and_is_cancelled_until_nothing_can_come(
    bookings: BookingWorld, end: bool
) -> None:
    world = bookings.world
    await disabled(bookings, end=end)
    # A statement that began before she was disabled, and whose row is seen after.
    told = "UPDATE users SET disabled_at = :at WHERE name = 'alice' RETURNING id"
    await bookings.rows(told, at=None)
    late = await world.submitted()
    await bookings.rows(told, at=bookings.time.at)
    for _ in range(2):
        await world.plan()
        assert (await world.row(late)).status is JobStatus.QUEUED
    assert await settle_disabled(world.uow) == 1
    row = await world.row(late)
    assert (row.status, row.reason.detail) == (
        JobStatus.CANCELLED,
        "Cancelled by system. The user alice is disabled.",
    )
    assert await bookings.rows(UNSETTLED)
    await bookings.time.go_on(SETTLES + timedelta(seconds=1))
    assert await settle_disabled(world.uow) == 0
    assert not await bookings.rows(UNSETTLED)


async def test_when_nothing_can_come_any_more_is_told_by_one_clock(lab: Lab) -> None:
    """Not by that of who disables."""
    lab.world.clock.at -= 3 * MINUTE
    await lab.disable()
    await settle_disabled(lab.world.uow)
    assert await lab.bookings.rows(UNSETTLED)


async def test_a_process_that_has_not_heard_of_it_takes_nothing_in(lab: Lab) -> None:
    before = await lab.bookings.rows("SELECT id FROM reservations ORDER BY id")
    await lab.disable()
    [named, bare] = await submit(
        lab.world.uow, [lab.world.new(booking_id=lab.slot.id), lab.world.new(key="k")], lab.world.clock.now()
    )
    assert [type(outcome.refusal) for outcome in (named, bare)] == [UnknownCallerError, UnknownCallerError]
    for wait in (False, True):
        with pytest.raises(UnknownCallerError):
            await lab.bookings.booked(NINE + 30 * HOUR, HOUR, wait=wait)
    series = BookingCreate.model_validate(
        {
            "gpus": 1,
            "start": (NINE + 30 * HOUR).isoformat(),
            "duration": 3600,
            "recurrence": {"rrule": "FREQ=DAILY;COUNT=2"},
        }
    )
    assert series.series is not None
    async with lab.world.uow() as uow:
        with pytest.raises(UnknownCallerError):
            await book_series(uow, lab.world.who, series, series.series, lab.bookings.ids)
    longer = BookingChange.model_validate({"end": (NINE + 5 * HOUR).isoformat()})
    async with lab.world.uow() as uow:
        with pytest.raises(UnknownCallerError):
            await change_booking(uow, lab.world.who, lab.slot.id, longer, None)
    assert await lab.bookings.rows("SELECT id FROM reservations ORDER BY id") == before
    assert not await lab.bookings.rows("SELECT key FROM idempotency_keys")
    # Administrators can still change what is left.
    root = await lab.bookings.root()
    shorter = BookingChange.model_validate({"end": (NINE + 5 * HOUR + 30 * MINUTE).isoformat()})
    async with lab.world.uow() as uow:
        changed = await change_booking(uow, root, lab.ahead.id, shorter, None)
    assert changed.span.end == NINE + 5 * HOUR + 30 * MINUTE


async def test_who_books_while_being_disabled_is_found_or_refused(lab: Lab) -> None:
    """Both take the user's row: a booking is stored before, and then listed or ended, or not at all."""
    made = await asyncio.gather(
        *(lab.bookings.booked(NINE + n * HOUR, HOUR) for n in range(30, 34)),
        lab.disable(end=True),
        *(lab.bookings.booked(NINE + n * HOUR, HOUR) for n in range(34, 38)),
        return_exceptions=True,
    )
    assert all(isinstance(outcome, (Booking, tuple, UnknownCallerError)) for outcome in made)
    async with lab.world.uow() as uow:
        user = await uow.identities.user("alice")
        assert user is not None
        assert [belonging.id for belonging in (await left(uow, user)).belongings] == [lab.runs]


async def test_what_waits_once_more_is_cancelled_however_long_ago_its_owner_was_disabled(
    bookings: BookingWorld,
) -> None:
    world = bookings.world
    job = await world.started()
    await disabled(bookings)
    await bookings.time.go_on(SETTLES + timedelta(seconds=1))
    assert await settle_disabled(world.uow) == 0
    assert not await bookings.rows(UNSETTLED)
    evicted = Reason(ReasonCode.EVICTED, "The node is being drained.")
    await world.see(world.cluster.show(pod(job), PodPhase.PENDING, reason=evicted))
    await world.operate()
    assert (await world.row(job)).status is JobStatus.QUEUED
    # Though nobody has looked yet.
    await world.plan()
    assert (await world.row(job)).status is JobStatus.QUEUED
    assert await settle_disabled(world.uow) == 1
    assert (await world.row(job)).status is JobStatus.CANCELLED
    assert not await bookings.rows(UNSETTLED)


async def test_an_offer_to_somebody_who_is_disabled_goes_back(lab: Lab) -> None:
    await lab.bookings.rows("DELETE FROM allocations WHERE reservation_id = :id RETURNING id", id=lab.bobs.id)
    await lab.bookings.rows(
        "WITH r AS (UPDATE reservations SET status = 'offered', gpu_type = 'h100' WHERE id = :id), "
        "b AS (UPDATE bookings SET offer_until = starts_at WHERE id = :id) "
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
        "VALUES (:id, 0, :gpu, 0, tstzrange(:start, :end), false, :start) RETURNING id",
        id=lab.request.id,
        gpu=lab.bobs.cards[0].gpu_id,
        start=NINE + HOUR,
        end=NINE + 2 * HOUR,
    )
    await lab.disable()
    assert await lab.booking_status(lab.request.id) is BookingStatus.CANCELLED
    assert await lab.bookings.taken(lab.request.id) == []


async def test_while_everything_else_goes_on(lab: Lab) -> None:
    """Looks at the calendar and the end of the slot at the same time: nothing is left, nothing is done twice."""
    await lab.bookings.root()
    await lab.bookings.time.set(NINE + 4 * HOUR - MINUTE)
    await asyncio.gather(lab.disable(end=True), lab.bookings.look(), settle_disabled(lab.world.uow), lab.disable())
    await lab.bookings.look()
    _, cancelled, remains = await lab.disable(end=True)
    assert (cancelled, [belonging.id for belonging in remains.belongings]) == (0, [lab.runs])
    for booking_id in (lab.slot.id, lab.ahead.id):
        assert (await lab.bookings.kinds(booking_id)).count("booking_cancelled") == 1
    # The look may come first to what waited, and whose time is over.
    ends = [kind for kind in await lab.bookings.kinds(lab.request.id) if kind != "booking_waitlisted"]
    assert ends in (["booking_cancelled"], ["booking_wait_expired"])


async def test_who_may(lab: Lab) -> None:
    root = await lab.bookings.root()
    async with lab.world.uow() as uow:
        with pytest.raises(ForbiddenError):
            await disable(uow, lab.world.who, "bob", end=True)
        with pytest.raises(ForbiddenError):
            await disable(uow, root, "me", end=False)
        with pytest.raises(NotFoundError):
            await disable(uow, root, "nobody", end=False)
