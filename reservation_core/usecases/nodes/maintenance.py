"""Maintenance windows: block GPUs for a while, and move, drain or end reservations in the way.

All changes are made in one transaction. A dry run is the same transaction, rolled back. No plan is written meanwhile;
concurrent bookings meet the calendar's constraint, and one of both tries again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.contracts.maintenance import MaintenanceCreate
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.maintenance import (
    Affected,
    GpuAddress,
    Window,
    due_window_change,
    in_the_way,
    job_fate,
    taken_back,
)
from reservation_core.domain.bookings.nouns import Booking
from reservation_core.domain.bookings.windows import LONGEST_WINDOW, Fate, WindowStatus
from reservation_core.domain.changes import SYSTEM, DrainBefore, Record
from reservation_core.domain.errors import CalendarConflictError, LimitExceededError, NotFoundError
from reservation_core.domain.event_kinds import JobEventKind
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.jobs.retries import is_retried
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.ids import IdSource
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.bookings.change import has_begun
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.nodes.existing_node import view_node
from reservation_core.usecases.nodes.make_room import ClearedWindow, move_or_cut
from reservation_core.usecases.people.users import require_admin
from reservation_core.usecases.rehearse import rehearse

_FARTHEST = timedelta(days=400)


async def plan_window(
    uow: UnitOfWork, principal: Principal, request: MaintenanceCreate, ids: IdSource, grace: timedelta
) -> Window:
    """Create a window and make room for it; `grace` is how long pods take to end.

    Raises ForbiddenError, NotFoundError for unknown GPUs, LimitExceededError for impossible times, and
    CalendarConflictError for another window in the way or a concurrent change.
    """
    require_admin(principal)
    cards = await _cards(uow, request)
    await uow.booking_life.block_plans()
    # Read afterwards: all jobs that the planner has started began before.
    now = await uow.now()
    span = _span(request, now)
    room = ClearedWindow(tuple(cards), span, _description(span, request.reason), principal.user, grace)
    affected = await _make_room(uow, room, ids, now)
    window = Window(
        id=ids.new_id("mnt"),
        seq=0,
        user_id=principal.user_id,
        user=principal.user,
        status=WindowStatus.ACTIVE if span.start <= now else WindowStatus.CONFIRMED,
        cards=tuple(cards),
        span=span,
        reason=request.reason,
        created_at=now,
        version=1,
        affected=tuple(affected),
        whole_nodes=tuple(_nodes(request)),
    )
    await uow.maintenance.add(window)
    _wake(uow)
    return window


async def preview_window(
    uow_factory: UnitOfWorkFactory, principal: Principal, request: MaintenanceCreate, ids: IdSource, grace: timedelta
) -> Window:
    """The window that `plan_window` would create. Raises as it does."""
    return await rehearse(uow_factory, lambda uow: plan_window(uow, principal, request, ids, grace))


async def end_window(uow: UnitOfWork, principal: Principal, window_id: str) -> Window:
    """Cancel a window, or end it early, and free its GPUs.

    Moved and ended reservations stay so. Raises ForbiddenError, NotFoundError, AlreadyFinalError.
    """
    require_admin(principal)
    window = await uow.maintenance.lock(window_id)
    if window is None:
        raise no_such_window(window_id)
    await uow.maintenance.apply(taken_back(window, principal.user, await uow.now()))
    _wake(uow)
    return await view_window(uow, window_id)


async def view_window(uow: UnitOfWork, window_id: str) -> Window:
    """One window, for any caller. Raises NotFoundError."""
    window = await uow.maintenance.view(window_id)
    if window is None:
        raise no_such_window(window_id)
    return window


async def keep_windows(uow_factory: UnitOfWorkFactory) -> int:
    """Begin and end windows by the database's clock; returns the number of changes."""
    async with uow_factory() as uow:
        due = await uow.maintenance.due(await uow.now())
    changed = 0
    for window_id in due:
        async with uow_factory() as uow:
            window = await uow.maintenance.lock(window_id)
            change = None if window is None else due_window_change(window, await uow.now())
            if change is not None:
                await uow.maintenance.apply(change)
                _wake(uow)
                changed += 1
    return changed


async def add_joined_cards(uow_factory: UnitOfWorkFactory, ids: IdSource, grace: timedelta) -> int:
    """Add new GPUs of whole nodes to their windows, and make room on them; returns the number of GPUs.

    After a lost race, a GPU is added in the next run.
    """
    async with uow_factory() as uow:
        joined = await uow.maintenance.joined(await uow.now())
    taken_in = 0
    for window_id in joined:
        try:
            async with uow_factory() as uow:
                taken_in += await _take_in(uow, window_id, ids, grace)
        except CalendarConflictError:
            continue
    return taken_in


async def _take_in(uow: UnitOfWork, window_id: str, ids: IdSource, grace: timedelta) -> int:
    await uow.booking_life.block_plans()
    window = await uow.maintenance.lock(window_id)
    now = await uow.now()
    cards = (await uow.maintenance.joined(now)).get(window_id, [])
    if window is None or not cards:
        return 0
    span = Span(max(window.span.start, now), window.span.end)
    room = ClearedWindow(tuple(cards), span, _description(span, window.reason), SYSTEM, grace)
    affected = await _make_room(uow, room, ids, now)
    await uow.maintenance.grow(window, cards, span, affected, now)
    _wake(uow)
    return len(cards)


def _description(span: Span, reason: str) -> str:
    return f"Maintenance from {span.start:%Y-%m-%dT%H:%M:%SZ} to {span.end:%Y-%m-%dT%H:%M:%SZ}: {reason}"


def no_such_window(window_id: str) -> NotFoundError:
    """The error for an unknown id."""
    return NotFoundError(f"There is no maintenance window {window_id}. `gpu-dev maintenance list` lists all windows.")


def _wake(uow: UnitOfWork) -> None:
    uow.wake(Channel.GPU_JOBS)
    uow.wake(Channel.EVENTS)


def _span(request: MaintenanceCreate, now: datetime) -> Span:
    this_minute = now.replace(second=0, microsecond=0)
    start = request.start
    if start is not None and start < this_minute:
        raise LimitExceededError("The start is in the past. Leave it out to begin now.")
    begin = now if start is None or start <= now else start
    end = request.end_from(this_minute if start is None else start)
    if end <= now:
        raise LimitExceededError("The end is in the past. Give a later one.")
    if end - begin > LONGEST_WINDOW or begin > now + _FARTHEST:
        raise LimitExceededError(
            f"A window lasts at most {LONGEST_WINDOW.days} days and begins at most {_FARTHEST.days} days from now."
        )
    return Span(begin, end)


def _nodes(request: MaintenanceCreate) -> list[str]:
    """The nodes that the window covers as a whole."""
    return [request.node] if request.node is not None else request.nodes or []


async def _cards(uow: UnitOfWork, request: MaintenanceCreate) -> list[GpuAddress]:
    nodes = _nodes(request)
    gpus = [(gpu.node, gpu.index) for gpu in request.gpus or []]
    cards = await uow.maintenance.cards_of(nodes, gpus)
    missing = sorted({*nodes} - {card.node for card in cards}) + sorted(
        f"{node}:{index}" for node, index in {*gpus} - {(card.node, card.index) for card in cards}
    )
    if missing:
        for node in sorted({*nodes, *(node for node, _ in gpus)} - {card.node for card in cards}):
            await view_node(uow, node)
        raise NotFoundError(
            f"There are no GPUs known at {', '.join(missing[:10])}. `gpu-dev gpus --each` lists all GPUs."
        )
    return cards


async def _make_room(uow: UnitOfWork, room: ClearedWindow, ids: IdSource, now: datetime) -> list[Affected]:
    """Make room: jobs first, then bookings, the general lock order."""
    way = in_the_way(await uow.maintenance.taken([card.gpu_id for card in room.cards], room.span))
    times = {"starts_at": room.span.start.isoformat(), "ends_at": room.span.end.isoformat()}
    record = Record(JobEventKind.MAINTENANCE_AFFECTS, room.actor, {"why": room.why, **times})
    dropped = await uow.maintenance.drop_slots(way.slots, record, now)
    affected = [Affected(slot, ReservationKind.JOB, user, Fate.PLANNED_ANEW) for slot, user in dropped]
    # Jobs in a booking that has to end are drained with it, on all of its GPUs.
    begun = [booking.id for booking in await _open_bookings(uow, way.bookings) if has_begun(booking, now)]
    within = await uow.maintenance.live_within(begun)
    affected += await _drain(uow, sorted({*way.jobs, *within}), room, now)
    bookings = (await uow.bookings.lock(way.bookings)).values()
    for booking in sorted(bookings, key=lambda booking: (booking.span.start, booking.seq)):
        change = await move_or_cut(uow, booking, room, ids, now)
        affected += [] if change is None else [change]
    return affected


async def _open_bookings(uow: UnitOfWork, booking_ids: Sequence[str]) -> list[Booking]:
    bookings = [await uow.bookings.view(booking_id) for booking_id in booking_ids]
    return [booking for booking in bookings if booking is not None]


async def _drain(uow: UnitOfWork, job_ids: Sequence[str], room: ClearedWindow, now: datetime) -> list[Affected]:
    jobs = await uow.reservations.lock(job_ids) if job_ids else {}
    event = DrainBefore(room.span.start, room.span.end, room.grace, room.why, room.actor)
    decided = [decide(job, event, now) for job in jobs.values()]
    changes = [change for change in decided if change is not None]
    await carry_out(uow, changes)
    fates = [job_fate(change.before, change.after, runs_again=is_retried(change.after)) for change in changes]
    return [fate for fate in fates if fate is not None]
