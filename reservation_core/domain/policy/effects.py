"""The effects of a policy change: existing reservations that would break a rule that they keep now.

A new rule takes nothing away; this lists what would no longer be permitted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.policy.limits import Limits, Policy
from reservation_core.domain.policy.nouns import QUOTAS
from reservation_core.domain.policy.quota_windows import WEEK, week_start
from reservation_core.domain.policy.rules import (
    NOTHING_HELD,
    Holding,
    OpenBooking,
    RuleBreach,
    RuleRequest,
    UsageView,
    check,
)
from reservation_core.domain.statuses import ReservationKind


@dataclass(frozen=True, slots=True)
class OpenReservation:
    """An unfinished job or booking; jobs within a booking are not listed.

    `gpus` is the sum over all nodes. `start` is None while a job waits; a running job's is the start of its range.
    """

    id: str
    kind: ReservationKind
    user: str
    project: str | None
    gpus: int
    gpu_type: str | None
    start: datetime | None
    duration: timedelta
    priority: int


@dataclass(frozen=True, slots=True)
class AffectedByPolicy:
    """A reservation, and the rules that it would break and does not break now."""

    reservation: OpenReservation
    broken: tuple[RuleBreach, ...]


def affected_by(
    before: Policy, after: Policy, opened: Sequence[OpenReservation], holdings: Sequence[Holding], now: datetime
) -> list[AffectedByPolicy]:
    """Those of `opened` that break a rule of `after` which they keep by `before`, in the given order.

    `holdings` are what everybody holds and has held this week. A waiting job is affected if it would wait for ever: a
    quota that is only used up now lets it start later, and its duration and priority are not checked again.
    """
    usages = _Usages(opened, holdings)
    affected = []
    for reservation in opened:
        limits = [
            policy.limits(reservation.user, reservation.project, reservation.gpu_type) for policy in (before, after)
        ]
        if limits[0] == limits[1]:
            continue
        usage = NOTHING_HELD if reservation.start is None else usages.of(reservation, limits)
        request = _request(reservation)
        kept = {rule.code for rule in check(request, before, usage, now)}
        broken = tuple(
            rule
            for rule in check(request, after, usage, now)
            if rule.code not in kept
            and (reservation.start is not None or rule.code in QUOTAS)
            and not (reservation.gpus == 0 and rule.code in QUOTAS)  # it counts for none
        )
        if broken:
            affected.append(AffectedByPolicy(reservation, broken))
    return affected


def _request(reservation: OpenReservation) -> RuleRequest:
    return RuleRequest(
        kind=reservation.kind,
        user=reservation.user,
        gpus=reservation.gpus,
        duration=reservation.duration,
        gpu_type=reservation.gpu_type,
        project=reservation.project,
        start=reservation.start,
        priority=reservation.priority,
        replaces=reservation.id,
        keeps_start=True,
    )


class _Usages:
    """Everybody's holdings and bookings, indexed by user and by project."""

    def __init__(self, opened: Iterable[OpenReservation], holdings: Iterable[Holding]) -> None:
        self._holdings: dict[tuple[str, str], list[Holding]] = {}
        self._bookings: dict[tuple[str, str], list[OpenBooking]] = {}
        for holding in holdings:
            for owner in _owners(holding.user, holding.project):
                self._holdings.setdefault(owner, []).append(holding)
        for reservation in opened:
            if reservation.kind is ReservationKind.BOOKING and reservation.start is not None:
                end = reservation.start + reservation.duration
                booking = OpenBooking(reservation.id, reservation.user, reservation.project, reservation.gpu_type, end)
                for owner in _owners(reservation.user, reservation.project):
                    self._bookings.setdefault(owner, []).append(booking)

    def of(self, reservation: OpenReservation, limits: Iterable[Limits]) -> UsageView:
        """The usage in the weeks of a reservation, or within the longest cooldown around it."""
        start = reservation.start
        if start is None:
            return NOTHING_HELD
        end = start + reservation.duration
        cooldowns = [limit.cooldown.value for limit in limits if limit.cooldown is not None]
        longest = max((value for value in cooldowns if value is not None), default=timedelta(0))
        since = min(week_start(start), start - longest)
        until = max(week_start(end) + WEEK, end + longest)
        owners = _owners(reservation.user, reservation.project)
        holdings = {
            id(holding): holding
            for owner in owners
            for holding in self._holdings.get(owner, ())
            if holding.start < until and since < holding.end
        }
        bookings = {booking.reservation_id: booking for owner in owners for booking in self._bookings.get(owner, ())}
        return UsageView(tuple(holdings.values()), tuple(bookings.values()))


def _owners(user: str, project: str | None) -> list[tuple[str, str]]:
    return [("user", user)] if project is None else [("user", user), ("project", project)]
