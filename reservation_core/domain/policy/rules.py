"""The check of a request against the policy: every broken rule at once, and from when on each would hold.

A request is checked against what is held (`UsageView`): jobs by their ranges in the ledger, bookings by their slots;
what runs within a booking does not count again. Proposed starts are whole minutes. An exception for bookings that start
soon lifts the rules that it names; bookings made under it count for later requests.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from reservation_core.domain.policy.limits import Limit, Limits, Policy
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.policy.quota_windows import (
    WEEK,
    Held,
    earliest_at_once,
    earliest_in_weeks,
    gpu_time,
    peak,
    peak_start,
    week_start,
    weeks_of,
    whole_minute,
)
from reservation_core.domain.policy.rule_words import (
    beside_text,
    counted,
    hours_text,
    moment_text,
    most_at_once,
    scope_text,
)
from reservation_core.domain.short_durations import in_words
from reservation_core.domain.statuses import ReservationKind

_HOUR = timedelta(hours=1)
_TRIES = 1000
_NAMED = 3
"""How many waiting jobs a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRequest:
    """A request to check. `gpus` is the sum over all nodes; `gpu_type` None is any type.

    A booking has a `start`; a job starts when it can, and is checked as if that were `now`. `replaces` is the changed
    reservation, whose holdings don't count. `keeps_start`: the notice does not matter. `extends`: more time of a job.
    """

    kind: ReservationKind
    user: str
    gpus: int
    duration: timedelta
    gpu_type: str | None = None
    project: str | None = None
    start: datetime | None = None
    priority: int = 0
    replaces: str | None = None
    keeps_start: bool = False
    extends: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """What a reservation holds of one type of GPU in [start, end), by the ledger.

    `planned`: the slot of a waiting job. `made_at` is when it was given, moved or extended last, if known.
    """

    reservation_id: str
    kind: ReservationKind
    user: str
    project: str | None
    gpu_type: str
    gpus: int
    start: datetime
    end: datetime
    planned: bool = False
    made_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OpenBooking:
    """An unfinished booking: waiting, offered, confirmed or active. `gpu_type` None: any, not chosen yet."""

    reservation_id: str
    user: str
    project: str | None
    gpu_type: str | None
    end: datetime


@dataclass(frozen=True, slots=True)
class UsageView:
    """What counts against the limits of one user and project: everything that ends after `known_from`."""

    holdings: tuple[Holding, ...] = ()
    open_bookings: tuple[OpenBooking, ...] = ()


NOTHING_HELD = UsageView()


@dataclass(frozen=True, slots=True)
class RuleBreach:
    """A broken rule: a stable code, and a message that says what to do.

    `possible_from` is the earliest start at which the rule would hold, if a later start helps; `ask_from` is when the
    same request can be made, if waiting helps.
    """

    code: str
    detail: str
    possible_from: datetime | None = None
    ask_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Question:
    """A request at its start, with the facts that decide it."""

    request: RuleRequest
    limits: Limits
    usage: UsageView
    start: datetime
    now: datetime

    @property
    def end(self) -> datetime:
        return self.start + self.request.duration

    def counted(self, scope: Scope) -> list[Held]:
        """What counts against a quota of this scope."""
        return [Held(held.gpus, held.start, held.end) for held in self.usage.holdings if self.counts(held, scope)]

    def counts(self, holding: Holding, scope: Scope) -> bool:
        """Whether a holding counts against a quota of this scope."""
        return (
            holding.reservation_id != self.request.replaces
            and _counts(scope, self.request, holding.user, holding.project)
            and scope.gpu_type in (None, holding.gpu_type)
        )

    def open_bookings(self, scope: Scope) -> list[OpenBooking]:
        """The open bookings that count against a limit of this scope."""
        return [
            booking
            for booking in self.usage.open_bookings
            if booking.reservation_id != self.request.replaces
            and _counts(scope, self.request, booking.user, booking.project)
            and scope.gpu_type in (None, booking.gpu_type)
        ]


def check(request: RuleRequest, policy: Policy, usage: UsageView, now: datetime) -> list[RuleBreach]:
    """Every rule that the request breaks, in the order of RuleName; empty if it is allowed."""
    limits = policy.limits(request.user, request.project, request.gpu_type)
    start = now if request.start is None else request.start
    question = _Question(request, limits, usage, start, now)
    lifted = _lifted(question)
    breaches = []
    for name, limit in limits:
        rule = _RULES.get(name)
        if rule is None or limit.value is None or name in lifted or not _concerns(name, request):
            continue
        if (breach := rule(question, limit.value, limit.scope)) is not None:
            breaches.append(breach)
    return breaches


def possible_from(request: RuleRequest, policy: Policy, usage: UsageView, now: datetime) -> datetime | None:
    """The earliest start, from the requested one on, at which no rule is broken; None when there is none."""
    start = now if request.start is None else request.start
    for _ in range(_TRIES):
        broken = check(replace(request, start=start), policy, usage, now)
        if not broken:
            return start
        starts = [breach.possible_from for breach in broken]
        later = max((moment for moment in starts if moment is not None), default=None)
        if None in starts or later is None:
            return None
        start = later
    return None


def never_possible(request: RuleRequest, policy: Policy, now: datetime) -> list[RuleBreach]:
    """The rules that a job breaks regardless of what is held, so that it would wait for ever."""
    return check(request, policy, NOTHING_HELD, now)


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit that applies to a request, and the current use; `used` None for limits without one.

    GPUs are the peak in the request's time, GPU-hours those of its fullest week.
    """

    name: RuleName
    limit: Limit[Any]
    used: float | None


def uses(request: RuleRequest, policy: Policy, usage: UsageView, now: datetime) -> list[LimitUse]:
    """Every limit that concerns the request, in the order of RuleName."""
    limits = policy.limits(request.user, request.project, request.gpu_type)
    start = now if request.start is None else request.start
    question = _Question(request, limits, usage, start, now)
    return [
        LimitUse(name, limit, _used(question, name, limit.scope)) for name, limit in limits if _concerns(name, request)
    ]


def _used(q: _Question, name: RuleName, scope: Scope) -> float | None:
    match name:
        case RuleName.MAX_GPUS:
            return peak(q.counted(scope), q.start, q.end)
        case RuleName.MAX_GPU_HOURS_PER_WEEK:
            held = q.counted(scope)
            return max(gpu_time(held, week, week + WEEK) / _HOUR for week in weeks_of(q.start, q.end))
        case RuleName.MAX_OPEN_BOOKINGS:
            return len(q.open_bookings(scope))
        case _:
            return None


def known_from(request: RuleRequest, limits: Limits, now: datetime) -> datetime:
    """The earliest time that `check` and `possible_from` need to know the ledger from."""
    start = now if request.start is None else request.start
    cooldown = None if limits.cooldown is None else limits.cooldown.value
    return min(week_start(start), start - (cooldown or timedelta(0)))


def _concerns(name: RuleName, request: RuleRequest) -> bool:
    if request.kind is not ReservationKind.BOOKING:
        return name not in _OF_BOOKINGS
    if name in (RuleName.ORDER, RuleName.IDLE):
        return False
    return not (request.keeps_start and name in (RuleName.MIN_NOTICE, RuleName.MAX_ADVANCE))


def _counts(scope: Scope, request: RuleRequest, user: str, project: str | None) -> bool:
    """Whether a user's holding counts against a quota of this scope."""
    return project == scope.project if scope.project is not None else user == request.user


def _lifted(question: _Question) -> frozenset[RuleName]:
    relaxed = question.limits.relaxed_if_starts_within
    if question.request.kind is not ReservationKind.BOOKING or relaxed is None or relaxed.value is None:
        return frozenset()
    notice = question.start - question.now
    return frozenset(name for waiver in relaxed.value if notice <= waiver.starts_within for name in waiver.lifts)


def _max_gpus(q: _Question, limit: int, scope: Scope) -> RuleBreach | None:
    held, gpus = q.counted(scope), q.request.gpus
    most = peak(held, q.start, q.end)
    if most + gpus <= limit:
        return None
    at = None if q.request.extends else earliest_at_once(held, gpus, limit, q.start, q.request.duration)
    peaks_at = peak_start(held, q.start, q.end)
    beside = beside_text(most, scope, peaks_at, q.now) + _promised(q, scope, peaks_at)
    if at is None:  # a job waits for what is held, a booking can't
        taken = most if q.request.kind is ReservationKind.BOOKING else 0
        advice = "Ask for less time" if q.request.extends else most_at_once(limit, taken)
    else:
        fewer = f", or ask for at most {counted(limit - most, 'GPU')}" if most < limit else ""
        advice = f"Start at {moment_text(at)}{fewer}"
    return RuleBreach(
        RuleName.MAX_GPUS.value,
        f"Asked for: {counted(gpus, 'GPU')}{beside}; the limit is {limit} at once ({scope_text(scope)}). {advice}.",
        at,
    )


def _promised(q: _Question, scope: Scope, at: datetime) -> str:
    """Say whose waiting jobs' slots are part of what is held at a time."""
    slots = [one for one in q.usage.holdings if one.planned and one.start <= at < one.end and q.counts(one, scope)]
    if not slots:
        return ""
    # Within a project the jobs may be other members', which the user may not know.
    own = [slot.reservation_id for slot in slots if slot.user == q.request.user][:_NAMED]
    owners = filter(None, (", ".join(own), "others" if len(slots) > len(own) else ""))
    return f", {sum(slot.gpus for slot in slots)} of them promised to {' and '.join(owners)}"


def _max_gpu_hours(q: _Question, limit: float, scope: Scope) -> RuleBreach | None:
    held, allowed, asked = q.counted(scope), limit * _HOUR, Held(q.request.gpus, q.start, q.end)
    for week in weeks_of(q.start, q.end):
        used = gpu_time(held, week, week + WEEK)
        more = gpu_time([asked], week, week + WEEK)
        if used + more <= allowed:
            continue
        at = None if q.request.extends else earliest_in_weeks(held, asked.gpus, allowed, q.start, q.request.duration)
        to = None if q.request.kind is ReservationKind.JOB else at  # a job has no start to choose
        advice = "Ask for fewer or for less time" if to is None else f"Ask for less, or start at {moment_text(to)}"
        return RuleBreach(
            RuleName.MAX_GPU_HOURS_PER_WEEK.value,
            f"{hours_text(more)} GPU-hours are asked for in the week from {week:%Y-%m-%d} (UTC)"
            f"{f', where {hours_text(used)} are taken' if used else ''}; "
            f"{limit:g} are allowed ({scope_text(scope)}). {advice}.",
            at,
        )
    return None


def _max_duration(q: _Question, limit: timedelta, scope: Scope) -> RuleBreach | None:
    if q.request.duration <= limit:
        return None
    return RuleBreach(
        RuleName.MAX_DURATION.value,
        f"Asked for: {in_words(q.request.duration)}; "
        f"the limit is {in_words(limit)} ({scope_text(scope)}). "
        "Ask for less time.",
    )


def _max_advance(q: _Question, limit: timedelta, scope: Scope) -> RuleBreach | None:
    if q.start - q.now <= limit:
        return None
    ask_from = q.start - limit
    return RuleBreach(
        RuleName.MAX_ADVANCE.value,
        f"A booking may start at most {in_words(limit)} from now ({scope_text(scope)}): "
        f"not after {moment_text(q.now + limit)}. Start earlier, or ask again from {moment_text(ask_from)} on.",
        ask_from=ask_from,
    )


def _min_notice(q: _Question, limit: timedelta, scope: Scope) -> RuleBreach | None:
    if q.start - q.now >= limit:
        return None
    at = whole_minute(q.now + limit)
    return RuleBreach(
        RuleName.MIN_NOTICE.value,
        f"A booking must be made {in_words(limit)} before its start ({scope_text(scope)}). "
        f"Start at {moment_text(at)} or later.",
        at,
    )


def _max_open_bookings(q: _Question, limit: int, scope: Scope) -> RuleBreach | None:
    open_bookings = q.open_bookings(scope)
    if len(open_bookings) < limit:
        return None
    over = sorted(booking.end for booking in open_bookings)
    ask_from = max(over[len(over) - limit], q.now) if limit else None
    advice = "Ask an administrator" if ask_from is None else f"Cancel one, or ask again from {moment_text(ask_from)} on"
    return RuleBreach(
        RuleName.MAX_OPEN_BOOKINGS.value,
        f"Open bookings: {len(open_bookings)}; the limit is {limit} at a time ({scope_text(scope)}). {advice}.",
        ask_from=ask_from,
    )


def _cooldown(q: _Question, limit: timedelta, scope: Scope) -> RuleBreach | None:
    """Check the time between a user's bookings of a type: after the last one, and before the next."""
    bookings = sorted(
        (holding.start, holding.end)
        for holding in q.usage.holdings
        if holding.kind is ReservationKind.BOOKING
        and holding.user == q.request.user
        and holding.reservation_id != q.request.replaces
        and q.request.gpu_type in (None, holding.gpu_type)
    )
    at = q.start
    for start, end in bookings:
        if start < at + q.request.duration + limit and end + limit > at:
            at = max(at, whole_minute(end + limit))
    if at == q.start:
        return None
    return RuleBreach(
        RuleName.COOLDOWN.value,
        f"{in_words(limit)} must lie between your bookings of this type ({scope_text(scope)}). "
        f"Start at {moment_text(at)}, or change the other booking.",
        at,
    )


def _priority(q: _Question, limit: int, scope: Scope) -> RuleBreach | None:
    if q.request.priority <= limit:
        return None
    return RuleBreach(
        RuleName.PRIORITY.value,
        f"Priority {q.request.priority} is asked for; at most {limit} is allowed ({scope_text(scope)}). Lower it.",
    )


_RULES: dict[RuleName, Callable[[_Question, Any, Scope], RuleBreach | None]] = {
    RuleName.MAX_GPUS: _max_gpus,
    RuleName.MAX_GPU_HOURS_PER_WEEK: _max_gpu_hours,
    RuleName.MAX_DURATION: _max_duration,
    RuleName.MAX_ADVANCE: _max_advance,
    RuleName.MIN_NOTICE: _min_notice,
    RuleName.MAX_OPEN_BOOKINGS: _max_open_bookings,
    RuleName.COOLDOWN: _cooldown,
    RuleName.PRIORITY: _priority,
}
_OF_BOOKINGS = frozenset({RuleName.MAX_ADVANCE, RuleName.MIN_NOTICE, RuleName.MAX_OPEN_BOOKINGS, RuleName.COOLDOWN})
