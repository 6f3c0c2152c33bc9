"""When a booking is refused, by its time, its project and the policy, with all reasons at once; and free slots."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reservation_core.domain.bookings.asked_slots import FARTHEST_START, LONGEST_BOOKING, Span
from reservation_core.domain.bookings.card_choice import BookableGpu, choose, never_bookable
from reservation_core.domain.bookings.nouns import ChosenGpu, Wanted
from reservation_core.domain.bookings.slot_search import nearest_slots
from reservation_core.domain.calendar import to_micros
from reservation_core.domain.policy.limits import Policy
from reservation_core.domain.policy.rules import (
    NOTHING_HELD,
    Holding,
    OpenBooking,
    RuleBreach,
    RuleRequest,
    UsageView,
    check,
    known_from,
)
from reservation_core.domain.statuses import ReservationKind

NO_FREE_GPUS = "no_free_gpus"
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A date of a series that can't be booked. `span` is None where its local time does not exist."""

    span: Span | None
    local_start: str
    broken: tuple[RuleBreach, ...]
    nearest: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Booker:
    """The user and project of a booking. `foreign`: what a non-member of the project breaks. `disabled`: gets nothing
    new.
    """

    user_id: int
    user: str
    project: str | None
    foreign: RuleBreach | None = None
    disabled: bool = False

    @property
    def judged_for(self) -> str | None:
        """The project whose rules apply: None for a foreign one, whose limits and use are not the user's to know."""
        return self.project if self.foreign is None else None


@dataclass(frozen=True, slots=True)
class Judge:
    """The facts that decide a user's booking. `replaces` is the booking to change; `begun`: that one is active."""

    who: Booker
    wanted: Wanted
    policy: Policy
    usage: UsageView
    now: datetime
    replaces: str | None = None
    begun: bool = False

    def broken(self, gpu_type: str | None, span: Span, *, keeps_start: bool = False) -> list[RuleBreach]:
        """Every rule that a slot on GPUs of this type would break."""
        breaches = too_long(span) if self.begun else timing(span, self.now)
        if self.who.foreign is not None:
            breaches.append(self.who.foreign)
        if self.policy.binds(self.who.user, self.who.judged_for):
            request = replace(self._request(gpu_type), start=span.start, duration=span.length, keeps_start=keeps_start)
            breaches += check(request, self.policy, self.usage, self.now)
        return breaches

    def known_from(self, gpu_types: Iterable[str | None]) -> datetime:
        """The earliest time that the rules need to know the ledger from, for any later start."""
        who = self.who
        return min(
            known_from(self._request(gpu_type), self.policy.limits(who.user, who.project, gpu_type), self.now)
            for gpu_type in gpu_types
        )

    def conceivable(self, gpu_types: Iterable[str], length: timedelta) -> frozenset[str]:
        """The types on which the rules might allow a slot of this length at some time."""
        if self.who.foreign is not None:
            return frozenset()
        if not self.policy.binds(self.who.user, self.who.judged_for):
            return frozenset(gpu_types)
        # Exceptions are for early starts: a request refused now, with nothing held, is refused at any time, unless
        # the broken rule says from when on it holds.
        return frozenset(
            gpu_type
            for gpu_type in gpu_types
            if not any(
                broken.possible_from is None and broken.ask_from is None
                for broken in check(
                    replace(self._request(gpu_type), duration=length), self.policy, NOTHING_HELD, self.now
                )
            )
        )

    def after(self, booking_id: str, gpu_type: str, span: Span) -> "Judge":
        """The same facts once this is booked, too."""
        gpus = self.wanted.gpus * self.wanted.nodes
        held = Holding(
            booking_id, ReservationKind.BOOKING, self.who.user, self.who.project, gpu_type, gpus, span.start, span.end
        )
        opened = OpenBooking(booking_id, self.who.user, self.who.project, gpu_type, span.end)
        usage = UsageView((*self.usage.holdings, held), (*self.usage.open_bookings, opened))
        return replace(self, usage=usage)

    def _request(self, gpu_type: str | None) -> RuleRequest:
        return RuleRequest(
            kind=ReservationKind.BOOKING,
            user=self.who.user,
            gpus=self.wanted.gpus * self.wanted.nodes,
            duration=_MINUTE,
            gpu_type=gpu_type,
            project=self.who.judged_for,
            start=self.now,
            replaces=self.replaces,
        )


def timing(span: Span, now: datetime) -> list[RuleBreach]:
    """The rules about time that a future booking breaks, whatever the policy. The current minute is not the past."""
    breaches: list[RuleBreach] = []
    if span.start < this_minute(now):
        breaches.append(RuleBreach("past_start", "Its start is in the past. Begin it now or later."))
    if span.start > now + FARTHEST_START:
        detail = f"It begins more than {FARTHEST_START.days} days from now. Book it when it is nearer."
        breaches.append(RuleBreach("too_far_ahead", detail))
    return breaches + too_long(span)


def too_long(span: Span) -> list[RuleBreach]:
    """The rule about length, if a booking breaks it."""
    if span.length <= LONGEST_BOOKING:
        return []
    return [RuleBreach("too_long", f"It is longer than {LONGEST_BOOKING.days} days. Book less.")]


def this_minute(now: datetime) -> datetime:
    """The start of the current minute."""
    return now.replace(second=0, microsecond=0)


def permitted(
    judge: Judge, gpus: Collection[BookableGpu], span: Span, *, keeps_start: bool = False
) -> tuple[list[BookableGpu], list[RuleBreach]]:
    """The GPUs of types on which this slot is allowed and fits at some time, or the reasons if there are none."""
    by_type = _broken_by_type(judge, gpus, span, keeps_start=keeps_start)
    allowed = {gpu_type for gpu_type, broken in by_type.items() if not broken}
    if allowed:
        return [gpu for gpu in gpus if gpu.gpu_type in allowed], []
    return [], _of_nearest_types(by_type)


def reasons(
    judge: Judge,
    gpus: Collection[BookableGpu],
    span: Span,
    *,
    keeps_start: bool = False,
    keep: Sequence[ChosenGpu] = (),
) -> list[RuleBreach]:
    """Every reason why a slot gets no GPUs, including that none are free. `keep` as in `choose`."""
    by_type = _broken_by_type(judge, gpus, span, keeps_start=keeps_start)
    for gpu_type, broken in by_type.items():
        wanted = replace(judge.wanted, gpu_type=gpu_type)
        is_known = (span.end > judge.now or not broken) and never_bookable(gpus, wanted) is None
        if is_known and choose(gpus, wanted, *from_now(span, judge.now), keep=keep) is None:
            broken.append(no_free_gpus(judge.wanted, can_wait=span.start > judge.now))
    return _of_nearest_types(by_type)


def _broken_by_type(
    judge: Judge, gpus: Collection[BookableGpu], span: Span, *, keeps_start: bool
) -> dict[str | None, list[RuleBreach]]:
    """For each type that the request can get: broken rules, and why it never fits."""
    wanted = judge.wanted
    fitting = [gpu for gpu in gpus if wanted.gpu_type in (None, gpu.gpu_type) and wanted.node in (None, gpu.node)]
    types: list[str | None] = [*sorted({gpu.gpu_type for gpu in fitting})]
    found = dict[str | None, list[RuleBreach]]()
    of_all = never_bookable(gpus, wanted)
    for gpu_type in types or [wanted.gpu_type]:
        never = of_all or never_bookable(gpus, replace(wanted, gpu_type=gpu_type))
        found[gpu_type] = judge.broken(gpu_type, span, keeps_start=keeps_start) + ([] if never is None else [never])
    return found


def _of_nearest_types(by_type: Mapping[str | None, Sequence[RuleBreach]]) -> list[RuleBreach]:
    """The reasons of the types with the fewest, each with its types unless all types have it.

    A type whose GPUs are only taken is nearer than one that is not allowed or never fits.
    """

    def distance(broken: Sequence[RuleBreach]) -> tuple[bool, int]:
        return any(breach.code != NO_FREE_GPUS for breach in broken), len(broken)

    nearest = min(map(distance, by_type.values()))
    types_of = dict[RuleBreach, list[str]]()
    for gpu_type, broken in by_type.items():
        for breach in broken:
            types_of.setdefault(breach, []).append(str(gpu_type))
    shown = dict.fromkeys(breach for broken in by_type.values() if distance(broken) == nearest for breach in broken)
    return [
        breach
        if len(types_of[breach]) == len(by_type)
        else replace(breach, detail=f"{', '.join(types_of[breach])}: {breach.detail}")
        for breach in shown
    ]


def rule_on(
    judge: Judge, gpus: Collection[BookableGpu], span: Span, *, wait: bool
) -> tuple[tuple[ChosenGpu, ...] | None, list[RuleBreach]]:
    """The GPUs that a new booking gets, or every reason why it is refused; neither if it would `wait` for GPUs."""
    able, broken = permitted(judge, gpus, span)
    chosen = choose(able, judge.wanted, *from_now(span, judge.now)) if able else None
    waits = wait and span.start > judge.now  # a request leaves the waitlist at its start
    return chosen, broken if chosen is not None or waits else reasons(judge, gpus, span)


def no_free_gpus(wanted: Wanted, *, can_wait: bool = True) -> RuleBreach:
    """The breach when all fitting GPUs are taken for some of the time."""
    of_type = "" if wanted.gpu_type is None else f"{wanted.gpu_type} "
    size = f"{wanted.gpus} {of_type}{'GPU' if wanted.gpus == 1 else 'GPUs'}"
    where = f" on {wanted.node}" if wanted.node else f" on each of {wanted.nodes} nodes" if wanted.nodes > 1 else ""
    advice = "Choose another time or fewer GPUs" + (", or join the waitlist." if can_wait else ".")
    detail = f"{size}{where} {'is' if wanted.gpus == 1 else 'are'} not free for that whole time. {advice}"
    return RuleBreach(NO_FREE_GPUS, detail)


def slots_near(
    judge: Judge, gpus: Collection[BookableGpu], wish: Span, broken: Sequence[RuleBreach]
) -> list[tuple[datetime, datetime]]:
    """The slots nearest to a wish that are free and allowed, for at least a minute from now.

    `gpus` must know the calendar from now on. A request that never fits has none.
    """
    types = judge.conceivable({gpu.gpu_type for gpu in gpus}, wish.length)
    able = [gpu for gpu in gpus if gpu.gpu_type in types]
    start = this_minute(judge.now) + _MINUTE
    # Accepting takes a moment: slots that would miss the minimum notice by then are left out.
    moments = (judge, replace(judge, now=judge.now + _MINUTE))
    aims = [breach.possible_from for breach in broken if breach.possible_from is not None]
    spans = nearest_slots(
        able,
        judge.wanted,
        wish,
        start,
        start + FARTHEST_START + wish.length,
        aims=[*aims, *(aim + _MINUTE for aim in aims)],
        allowed=lambda gpu_type, span: not any(moment.broken(gpu_type, span) for moment in moments),
    )
    return [(span.start, span.end) for span in spans]


def from_now(span: Span, now: datetime) -> tuple[int, int]:
    """A slot's time as the ledger has it: a start in the current minute means now."""
    return to_micros(max(span.start, now)), to_micros(span.end)
