"""Bookings as bodies of REST: the only place that decides who sees which fields."""

from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby

from api_service.access.sight import Sight
from api_service.presenting.policy import cost_out
from reservation_core.contracts import base as contracts
from reservation_core.contracts import jobs as contracts_jobs
from reservation_core.contracts.bookings import (
    Availability,
    BookedCards,
    BookingOut,
    BookingReasonOut,
    BookingSeries,
    BookingVerdict,
    FreeSlotOut,
    SeriesVerdict,
    SkippedDate,
    TypeAvailability,
)
from reservation_core.domain.bookings.nouns import Booking, FreeSlot
from reservation_core.domain.bookings.refusals import Skipped
from reservation_core.domain.model import PodWorkload
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.prices import Money, sum_costs
from reservation_core.domain.request_terms import Resources
from reservation_core.domain.statuses import BookingReason, BookingStatus, RequestVerdict
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book_series import SeriesOutcome
from reservation_core.usecases.bookings.find_slots import FreeOverTime
from reservation_core.usecases.bookings.visible_bookings import may_change_booking


def booking(found: Booking, sight: Sight) -> BookingOut:
    """A booking; of other users' only its time and GPUs, and its owner if the caller may see that."""
    may_change = may_change_booking(sight.caller, found)
    return BookingOut(
        id=found.id,
        title=found.title if may_change else None,
        user=found.user if sight.sees(found.user_id) else None,
        project=found.project if may_change else None,
        status=found.status,
        reason=_reason(found, may_change=may_change),
        gpus=found.wanted.gpus,
        gpu_type=found.wanted.gpu_type,
        nodes=found.wanted.nodes,
        node=found.wanted.node if may_change else None,
        start=found.span.start,
        end=found.span.end,
        duration=found.span.length,
        created_at=found.created_at,
        series_id=found.series_id if may_change else None,
        allocations=_allocations(found, may_change=may_change),
        workload=_workload(found.workload) if may_change and found.workload is not None else None,
        jobs=list(found.jobs) if may_change else [],
        used_at=found.used_at if may_change else None,
        release_at=_release_at(found) if may_change else None,
        offer_until=found.offer_until if may_change else None,
        waits_until=found.waits_until if may_change else None,
        auto_accept=found.auto_accept if may_change else False,
        resources=_share(found) if may_change else None,
    )


def verdict(found: Booking, now: datetime, policy: Policy) -> BookingVerdict:
    """What one's own booking would be, and its cost."""
    cost = _cost(found, policy)
    begins = found.status is not BookingStatus.WAITING and found.span.start <= now
    return BookingVerdict(
        verdict=RequestVerdict.STARTS_NOW if begins else RequestVerdict.ACCEPTED,
        status=found.status,
        reason=_reason(found, may_change=True),
        title=found.title,
        project=found.project,
        gpus=found.wanted.gpus,
        gpu_type=found.wanted.gpu_type,
        nodes=found.wanted.nodes,
        node=found.wanted.node,
        start=found.span.start,
        end=found.span.end,
        duration=found.span.length,
        allocations=_allocations(found, may_change=True),
        waits_until=found.waits_until,
        cost=None if cost is None else cost_out(cost),
        resources=_share(found),
    )


def series_verdict(outcome: SeriesOutcome, now: datetime, policy: Policy) -> SeriesVerdict:
    """What one's own series would be, and its cost."""
    costs = (_cost(booked, policy) for booked in outcome.booked)
    return SeriesVerdict(
        items=[verdict(booked, now, policy) for booked in outcome.booked],
        skipped=[_skipped(skipped_date) for skipped_date in outcome.skipped],
        costs=[cost_out(cost) for cost in sum_costs(cost for cost in costs if cost is not None)],
    )


def _cost(found: Booking, policy: Policy) -> Money | None:
    """The cost of the whole duration, once the type is chosen."""
    if found.wanted.gpu_type is None:
        return None
    price = policy.price(found.user, found.project, found.wanted.gpu_type)
    gpu_seconds = found.wanted.gpus * found.wanted.nodes * Decimal(found.span.length // timedelta(seconds=1))
    return None if price is None else price.of_time(gpu_seconds)


def _allocations(found: Booking, *, may_change: bool) -> list[BookedCards]:
    by_rank = groupby(sorted(found.cards, key=lambda card: (card.rank, card.index)), key=lambda card: card.rank)
    allocations = []
    for _, group in by_rank:
        cards = list(group)
        allocations.append(
            BookedCards(
                node=cards[0].node,
                gpu_indices=[card.index for card in cards],
                gpu_uuids=[card.uuid if may_change else None for card in cards],
            )
        )
    return allocations


def _share(found: Booking) -> contracts.ResourcesOut | None:
    return None if found.share is None else contracts.ResourcesOut.of(Resources(found.share))


def _reason(found: Booking, *, may_change: bool) -> BookingReasonOut:
    if may_change:
        return BookingReasonOut(code=found.why.code, detail=found.why.detail)
    # A refusal of the workload is shown to its owner alone.
    refused = found.why.code is BookingReason.WORKLOAD_REFUSED
    return BookingReasonOut(code=BookingReason.IN_SLOT if refused else found.why.code, detail="")


def _release_at(found: Booking) -> datetime | None:
    """When the booking is released if it is not used; None also if it ends before that."""
    return found.release_at if found.release_at is not None and found.release_at < found.span.end else None


def series(outcome: SeriesOutcome, caller: Principal) -> BookingSeries:
    return BookingSeries(
        series_id=outcome.series_id,
        items=[booking(booked, Sight(caller)) for booked in outcome.booked],
        skipped=[_skipped(skipped_date) for skipped_date in outcome.skipped],
    )


def free_slot(found: FreeSlot) -> FreeSlotOut:
    return FreeSlotOut(
        gpu_type=found.gpu_type, start=found.span.start, end=found.span.end, latest_start=found.latest_start
    )


def availability(found: FreeOverTime) -> Availability:
    return Availability(
        start=found.start,
        end=found.end,
        step=found.step,
        items=[
            TypeAvailability(gpu_type=gpu_type, gpus=gpus, free=free) for gpu_type, (gpus, free) in found.types.items()
        ],
    )


def _skipped(found: Skipped) -> SkippedDate:
    return SkippedDate(
        local_start=found.local_start,
        start=None if found.span is None else found.span.start,
        end=None if found.span is None else found.span.end,
        broken_rules=[contracts.BrokenRule(code=breach.code, detail=breach.detail) for breach in found.broken],
        nearest_slots=[contracts.Slot(start=span.start, end=span.end) for span in found.nearest],
    )


def _workload(workload: PodWorkload) -> contracts_jobs.WorkloadSpec:
    # The class checks nothing: a stored workload can always be shown, whatever is accepted today.
    return contracts_jobs.WorkloadSpec(
        image=workload.image,
        command=list(workload.command),
        env=dict(workload.env),
        working_dir=workload.working_dir,
    )
