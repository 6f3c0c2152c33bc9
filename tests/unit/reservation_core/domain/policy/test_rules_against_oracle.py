"""The policy's rules against an oracle that looks at every minute."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import example, given

from reservation_core.domain.policy.limits import UNLIMITED, Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.policy.rules import (
    Holding,
    RuleBreach,
    RuleRequest,
    UsageView,
    check,
    known_from,
    possible_from,
)
from tests.unit.reservation_core.domain.policy.rule_cases import (
    BOOKING,
    FAR,
    MINUTE,
    MONDAY,
    WEEK_MINUTES,
    Case,
    cases,
    minute,
    thorough,
)


def oracle_limits(case: Case, name: RuleName) -> list[tuple[object, Scope]]:
    """What holds: the most specific, and of quotas beside a user's own also the project's."""
    first = oracle_limit(case, name.value)
    if first is None:
        return []
    own = first[1].user is not None
    counted = name in (RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK, RuleName.MAX_OPEN_BOOKINGS)
    other = oracle_limit(case, name.value, of_user=False) if own and counted else None
    return [first] if other is None or other[1].project is None else [first, other]


def oracle_limit(case: Case, name: str, *, of_user: bool = True) -> tuple[object, Scope] | None:
    """The value and scope that win, by looking at every rule."""
    order = [
        *([(case.request.user, None, case.request.gpu_type), (case.request.user, None, None)] if of_user else []),
        *(
            []
            if case.request.project is None
            else [(None, case.request.project, case.request.gpu_type), (None, case.request.project, None)]
        ),
        (None, None, case.request.gpu_type),
        (None, None, None),
    ]
    for user, project, gpu_type in order:
        for rule in case.rules:
            if rule.scope == Scope(user, project, gpu_type) and getattr(rule.rules, name) is not None:
                return getattr(rule.rules, name), rule.scope
    return None


def oracle_counts(case: Case, scope: Scope, user: str, project: str | None, gpu_type: str | None) -> bool:
    whose = project == scope.project if scope.project is not None else user == case.request.user
    return whose and scope.gpu_type in (None, gpu_type)


def oracle_gpus(case: Case, scope: Scope, at: datetime) -> int:
    return sum(
        holding.gpus
        for holding in case.usage.holdings
        if holding.reservation_id != case.request.replaces
        and oracle_counts(case, scope, holding.user, holding.project, holding.gpu_type)
        and holding.start <= at < holding.end
    )


def oracle_week(at: datetime) -> int:
    return (at - MONDAY) // timedelta(days=7)


def oracle_broken(case: Case) -> list[str]:
    """The codes of the broken rules, minute by minute."""
    request, found = case.request, []
    assert request.start is not None
    minutes = [request.start + n * MINUTE for n in range(request.duration // MINUTE)]
    relaxed = oracle_limit(case, "relaxed_if_starts_within")
    lifted = {
        name
        for relaxation in (relaxed[0] if relaxed is not None and request.kind is BOOKING else ())  # type: ignore[attr-defined]
        if request.start <= case.now + relaxation.starts_within
        for name in relaxation.lifts
    }
    for name in RuleName:
        for value, scope in oracle_limits(case, name):
            if value is not UNLIMITED and name not in lifted and breaks(case, name, value, scope, minutes):
                found.append(name.value)
    return found


def breaks(case: Case, name: RuleName, value: object, scope: Scope, minutes: list[datetime]) -> bool:
    request = case.request
    booking = request.kind is BOOKING
    assert request.start is not None
    match name:
        case RuleName.MAX_GPUS:
            return any(oracle_gpus(case, scope, at) + request.gpus > value for at in minutes)  # type: ignore[operator]
        case RuleName.MAX_GPU_HOURS_PER_WEEK:
            for week in {oracle_week(at) for at in minutes}:
                mine = sum(request.gpus for at in minutes if oracle_week(at) == week)
                theirs = sum(
                    oracle_gpus(case, scope, minute(n)) for n in range(-200, FAR) if oracle_week(minute(n)) == week
                )
                if mine + theirs > round(value * 60):  # type: ignore[operator]
                    return True
            return False
        case RuleName.MAX_DURATION:
            return request.duration > value  # type: ignore[operator]
        case RuleName.MAX_ADVANCE:
            return booking and request.start > case.now + value  # type: ignore[operator]
        case RuleName.MIN_NOTICE:
            return booking and request.start < case.now + value  # type: ignore[operator]
        case RuleName.MAX_OPEN_BOOKINGS:
            count = sum(
                listed_booking.reservation_id != request.replaces
                and oracle_counts(case, scope, listed_booking.user, listed_booking.project, listed_booking.gpu_type)
                for listed_booking in case.usage.open_bookings
            )
            return booking and count + 1 > value  # type: ignore[operator]
        case RuleName.COOLDOWN:
            mine_ = [
                holding
                for holding in case.usage.holdings
                if holding.kind is BOOKING
                and holding.user == request.user
                and holding.reservation_id != request.replaces
                and holding.gpu_type == request.gpu_type
            ]
            end = request.start + request.duration
            return booking and any(
                holding.start - end < value and request.start - holding.end < value for holding in mine_
            )  # type: ignore[operator]
        case RuleName.PRIORITY:
            return request.priority > value  # type: ignore[operator]
        case RuleName.NO_SHOW_GRACE:
            return False


@thorough
@given(cases())
def test_broken_rules_are_the_oracles(case: Case) -> None:
    found = check(case.request, Policy(case.rules), case.usage, case.now)
    assert [breach.code for breach in found] == oracle_broken(case)
    assert all(breach.detail for breach in found)


ONLY_ABOUT_THE_SECOND_WEEKS_END = Case(
    RuleRequest(
        kind=BOOKING, user="ann", gpus=3, duration=150 * MINUTE, gpu_type="a", project=None, start=minute(0), priority=0
    ),
    (PolicyRule(Scope(user="ann"), Rules(max_gpu_hours_per_week=261 / 60)),),
    UsageView((Holding("bkg-0", BOOKING, "ann", None, "a", 1, minute(0), minute(100)),), ()),
    minute(0),
)


@thorough
@given(cases())
@example(ONLY_ABOUT_THE_SECOND_WEEKS_END)
def test_the_earliest_start_is_the_oracles(case: Case) -> None:
    assert case.request.start is not None
    found = possible_from(case.request, Policy(case.rules), case.usage, case.now)
    first = (case.request.start - MONDAY) // MINUTE
    # Beyond everything that is held nothing changes but where a week begins. Usage in the first may leave too little of
    # it: only about the begin of the one after the next all weeks are alike.
    about_weeks = [range(week - 160, week + 2) for week in (WEEK_MINUTES, 2 * WEEK_MINUTES)]
    candidates = [*range(first, FAR + 70), *about_weeks[0], *about_weeks[1]]
    starts = (
        minute(n)
        for n in candidates
        if n >= first and not oracle_broken(replace(case, request=replace(case.request, start=minute(n))))
    )
    assert found == next(starts, None)


def rule_of(broken: RuleBreach) -> tuple[str, list[str]]:
    """A quota of a user and one of their project are two rules of one code."""
    return broken.code, re.findall(r"\((?:user|project|everybody)[^)]*\)", broken.detail)


@thorough
@given(cases())
def test_each_rule_says_from_when_it_would_hold(case: Case) -> None:
    policy = Policy(case.rules)
    for broken in check(case.request, policy, case.usage, case.now):
        if broken.possible_from is None:
            continue
        assert case.request.start is not None
        assert broken.possible_from > case.request.start
        moved = replace(case.request, start=broken.possible_from)
        assert rule_of(broken) not in [rule_of(breach) for breach in check(moved, policy, case.usage, case.now)]
        before = replace(case.request, start=broken.possible_from - MINUTE)
        assert rule_of(broken) in [rule_of(breach) for breach in check(before, policy, case.usage, case.now)]


@thorough
@given(cases())
def test_nothing_earlier_than_known_from_matters(case: Case) -> None:
    policy = Policy(case.rules)
    first = known_from(case.request, policy.limits("ann", case.request.project, case.request.gpu_type), case.now)
    seen = UsageView(tuple(holding for holding in case.usage.holdings if holding.end > first), case.usage.open_bookings)
    assert check(case.request, policy, seen, case.now) == check(case.request, policy, case.usage, case.now)
    assert possible_from(case.request, policy, seen, case.now) == possible_from(
        case.request, policy, case.usage, case.now
    )
