"""Effects of a change of the policy: what is there already and would break a rule that it keeps now.

Nothing is taken from anybody by a new rule; this says of whom it would not be permitted any more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.model import ReservationKind
from reservation_core.domain.policy.limits import QUOTAS, Limits, Policy
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


@dataclass(frozen=True, slots=True)
class OpenReservation:
    """A job or booking that is not over; what runs within a booking is the booking's, and none of these.

    `gpus` is the sum over all nodes. `start` is None while a job waits; of what runs it is where its range begins.
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
    """One of these, and the rules that it would break and does not break now."""

    reservation: OpenReservation
    broken: tuple[RuleBreach, ...]


def affected_by(
    before: Policy, after: Policy, opened: Sequence[OpenReservation], holdings: Sequence[Holding], now: datetime
) -> list[AffectedByPolicy]:
    """Those of `opened` that break a rule of `after` which they keep by `before`, in the order given.

    `holdings` are what everybody holds and has held this week. A job that waits is affected when it would wait for
    ever: a quota that is only used up at the moment lets it start later, and how long it may last and with which
    priority it is not asked again.
    """
    usages = _Usages(opened, holdings)
    found = []
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
            if rule.code not in kept and (reservation.start is not None or rule.code in QUOTAS)
        )
        if broken:
            found.append(AffectedByPolicy(reservation, broken))
    return found


def _request(each: OpenReservation) -> RuleRequest:
    return RuleRequest(
        kind=each.kind,
        user=each.user,
        gpus=each.gpus,
        duration=each.duration,
        gpu_type=each.gpu_type,
        project=each.project,
        start=each.start,
        priority=each.priority,
        replaces=each.id,
        keeps_start=True,
    )


class _Usages:
    """What counts against each: by user and by project, so that nobody looks through what everybody holds."""

    def __init__(self, opened: Iterable[OpenReservation], holdings: Iterable[Holding]) -> None:
        self._holdings: dict[tuple[str, str], list[Holding]] = {}
        self._bookings: dict[tuple[str, str], list[OpenBooking]] = {}
        for holding in holdings:
            for whose in _whose(holding.user, holding.project):
                self._holdings.setdefault(whose, []).append(holding)
        for reservation in opened:
            if reservation.kind is ReservationKind.BOOKING and reservation.start is not None:
                end = reservation.start + reservation.duration
                booking = OpenBooking(reservation.id, reservation.user, reservation.project, reservation.gpu_type, end)
                for whose in _whose(reservation.user, reservation.project):
                    self._bookings.setdefault(whose, []).append(booking)

    def of(self, each: OpenReservation, limits: Iterable[Limits]) -> UsageView:
        """Usage at its time, or in its weeks, or within the longest cool-down before it."""
        start = each.start
        if start is None:
            return NOTHING_HELD
        cooldowns = [limit.cooldown.value for limit in limits if limit.cooldown is not None]
        longest = max((value for value in cooldowns if value is not None), default=timedelta(0))
        since = min(week_start(start), start - longest)
        until = max(week_start(start + each.duration) + WEEK, start + each.duration + longest)
        whose = _whose(each.user, each.project)
        held = {
            id(one): one
            for key in whose
            for one in self._holdings.get(key, ())
            if one.start < until and since < one.end
        }
        bookings = {one.reservation_id: one for key in whose for one in self._bookings.get(key, ())}
        return UsageView(tuple(held.values()), tuple(bookings.values()))


def _whose(user: str, project: str | None) -> list[tuple[str, str]]:
    return [("user", user)] if project is None else [("user", user), ("project", project)]
