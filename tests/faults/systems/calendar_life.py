"""The calendar beside a fault test's jobs: bookings, a quota, extensions and cancels, and what must hold of them."""

from dataclasses import dataclass, field
from datetime import timedelta

from reservation_core.contracts.bookings import BookingCreate
from reservation_core.domain.bookings.refusals import this_minute
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.domain.policy.limits import Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import book
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.jobs.extend import extend
from tests.faults.systems.system import LONGEST, System

HOUR = timedelta(hours=1)
MOST = 1
"""So many GPUs may the other user hold at once."""
_LATE = timedelta(seconds=2)

_MOST_AT_ONCE = """
WITH held AS (
    SELECT tstzrange(a.created_at, coalesce(a.released_at, 'infinity')) AS during
    FROM allocations a JOIN reservations r ON r.id = a.reservation_id
    WHERE r.user_id = :user_id AND r.kind = 'job' AND a.booking_id IS NULL AND NOT a.planned
)
SELECT coalesce(max((SELECT count(*) FROM held b WHERE b.during @> lower(a.during))), 0) AS most FROM held a
"""
# Of jobs that were promised a start, those that did not start by then, without a word in the record.
_BROKEN_SILENTLY = """
SELECT p.reservation_id, p.promised_start_at FROM start_promises p JOIN reservations r ON r.id = p.reservation_id
WHERE NOT EXISTS (SELECT FROM allocations a WHERE a.reservation_id = p.reservation_id AND NOT a.planned
                  AND a.created_at <= p.promised_start_at + CAST(:late AS interval))
  AND coalesce(r.finished_at, 'infinity') > p.promised_start_at + CAST(:late AS interval)
  AND clock_timestamp() > p.promised_start_at + CAST(:late AS interval)
  AND NOT EXISTS (SELECT FROM events e WHERE e.reservation_id = p.reservation_id AND e.kind = 'start_promise_missed')
"""
_CARDS = """
SELECT a.gpu_id, lower(a.during) AS start, upper(a.during) AS until FROM allocations a
WHERE a.reservation_id = :id AND a.released_at IS NULL ORDER BY a.gpu_id
"""


@dataclass(slots=True)
class CalendarLife:
    """What was acknowledged beside the jobs. `bob` has a quota; `durations` are what extended jobs have by now."""

    bob: Principal
    quota_jobs: tuple[str, ...] = ()
    kept: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    let_go: str = ""
    within: str = ""
    durations: dict[str, timedelta] = field(default_factory=dict)


async def begin(system: System) -> CalendarLife:
    """Bookings now and ahead, one of them to be cancelled, and a quota for bob, who asks for more than it is."""
    now = system.runtime.clock.now()
    async with system.runtime.uow() as uow:
        user = await uow.identities.create_user("bob", Role.USER, now)
        await uow.policies.replace_rule(Scope(user="bob"), Rules(max_gpus=MOST), by="ada", from_file=False, now=now)
    life = CalendarLife(Principal(user.id, user.name, user.role, "tok-b", None))
    short = system.records.workload(work="sleep 0.2")
    life.quota_jobs = tuple(
        await system.submit(*(system.new(short, who=life.bob) for _ in range(3)), system.new(short, who=life.bob))
    )
    within = await _booked(system, timedelta(0), gpus=1, workload=short)
    ahead = [await _booked(system, hours * HOUR, gpus=4, node="a") for hours in (2, 3)]
    life.within, life.let_go = within, ahead.pop()
    for booking_id in (within, *ahead):
        life.kept[booking_id] = await _cards(system, booking_id)
    await extended(system, life, life.quota_jobs[-1])
    return life


async def extended(system: System, life: CalendarLife, job_id: str) -> None:
    """A minute more for a job, on record once it is acknowledged; refused where its GPUs are promised by then."""
    now = system.runtime.clock.now()
    try:
        async with system.runtime.uow() as uow:
            view = await extend(uow, system.owner, job_id, timedelta(minutes=1), None, LONGEST, now)
    except CalendarConflictError:
        return
    life.durations[job_id] = view.reservation.duration


async def go_on(system: System, life: CalendarLife) -> None:
    """Somebody cancels a booking, once."""
    if life.let_go and life.let_go not in life.kept:
        async with system.runtime.uow() as uow:
            await cancel_booking(uow, system.owner, life.let_go, "this", None)
        life.kept[life.let_go] = []


async def ended_within(system: System, life: CalendarLife) -> str | None:
    """The job of the booking that has begun, when it has succeeded."""
    rows = await system.rows("SELECT id, status FROM reservations WHERE booking_id = :id", id=life.within)
    return next((row.id for row in rows if row.status == JobStatus.SUCCEEDED), None)


async def assert_calendar_held(system: System, life: CalendarLife) -> None:
    """Bookings have the cards and times they were given; no quota was passed, and no promise broken without a word."""
    for booking_id, cards in life.kept.items():
        assert await _cards(system, booking_id) == cards, booking_id
    [[most]] = await system.rows(_MOST_AT_ONCE, user_id=life.bob.user_id)
    assert most == MOST
    assert await system.rows(_BROKEN_SILENTLY, late=_LATE) == []
    for job_id, duration in life.durations.items():
        assert (await system.job(job_id)).reservation.duration == duration, job_id


async def _cards(system: System, booking_id: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await system.rows(_CARDS, id=booking_id)]


async def _booked(system: System, ahead: timedelta, **fields: object) -> str:
    async with system.runtime.uow() as uow:
        # A minute that has begun is now; it is the database that says which.
        start = this_minute(await uow.now()) + ahead
        request = BookingCreate.model_validate({"start": start.isoformat(), "duration": 3600, **fields})
        return (await book(uow, system.owner, request, system.runtime.ids)).id
