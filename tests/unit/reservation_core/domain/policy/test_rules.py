"""The policy's rules against an oracle that looks at every minute, and what each says."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from reservation_core.domain.model import ReservationKind
from reservation_core.domain.policy.limits import (
    UNLIMITED,
    Limit,
    Policy,
    PolicyRule,
    Relaxation,
    RuleName,
    Rules,
    Scope,
)
from reservation_core.domain.policy.quota_windows import week_start, whole_minute
from reservation_core.domain.policy.rules import (
    NOTHING_HELD,
    Holding,
    OpenBooking,
    RuleBreach,
    RuleRequest,
    UsageView,
    check,
    known_from,
    possible_from,
    uses,
)
from tests.examples import examples

MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WEEK_MINUTES = 7 * 24 * 60
BOOKING, JOB = ReservationKind.BOOKING, ReservationKind.JOB
FAR = 240
"""Everything held ends before this minute."""


def minute(number: int) -> datetime:
    return MONDAY + number * MINUTE


@dataclass(frozen=True)
class Case:
    request: RuleRequest
    rules: tuple[PolicyRule, ...]
    usage: UsageView
    now: datetime


def lengths(most: int) -> st.SearchStrategy[timedelta]:
    return st.integers(1, most).map(lambda n: n * MINUTE)


def optional(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), strategy, st.just(UNLIMITED))


RULES = st.builds(
    Rules,
    max_gpus=optional(st.integers(0, 6)),
    max_gpu_hours_per_week=optional(st.integers(0, 300).map(lambda minutes: minutes / 60)),
    max_duration=optional(lengths(120)),
    max_advance=optional(lengths(200)),
    min_notice=optional(lengths(60)),
    max_open_bookings=optional(st.integers(0, 3)),
    cooldown=optional(lengths(60)),
    priority=optional(st.integers(-2, 2)),
    relaxed_if_starts_within=st.one_of(
        st.none(),
        st.lists(
            st.builds(
                Relaxation,
                lengths(60),
                st.frozensets(st.sampled_from([RuleName.MAX_GPUS, RuleName.COOLDOWN, RuleName.MIN_NOTICE])),
            ),
            max_size=2,
        ).map(tuple),
    ),
)
SCOPES = st.one_of(
    st.builds(Scope, gpu_type=st.sampled_from([None, "a", "b"])),
    st.builds(Scope, user=st.sampled_from(["ann", "bob"]), gpu_type=st.sampled_from([None, "a"])),
    st.builds(Scope, project=st.sampled_from(["p", "q"]), gpu_type=st.sampled_from([None, "a"])),
)
POLICIES = st.dictionaries(SCOPES, RULES, max_size=5).map(
    lambda found: tuple(PolicyRule(scope, rules) for scope, rules in found.items())
)


@st.composite
def holdings(draw: st.DrawFn) -> Holding:
    start = draw(st.integers(-200, 200))
    return Holding(
        f"bkg-{draw(st.integers(0, 5))}",
        draw(st.sampled_from([BOOKING, JOB])),
        draw(st.sampled_from(["ann", "bob"])),
        draw(st.sampled_from([None, "p", "q"])),
        draw(st.sampled_from(["a", "b"])),
        draw(st.integers(1, 3)),
        minute(start),
        minute(draw(st.integers(start + 1, FAR))),
    )


OPEN = st.builds(
    OpenBooking,
    st.integers(0, 5).map(lambda n: f"bkg-{n}"),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from([None, "p", "q"]),
    st.sampled_from([None, "a", "b"]),
    st.integers(-100, FAR).map(minute),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    now = draw(st.integers(-120, 60))
    request = RuleRequest(
        kind=draw(st.sampled_from([BOOKING, BOOKING, JOB])),
        user="ann",
        gpus=draw(st.integers(1, 4)),
        duration=draw(lengths(150)),
        gpu_type=draw(st.sampled_from(["a", "b"])),
        project=draw(st.sampled_from([None, "p"])),
        start=minute(draw(st.integers(now, now + 200))),
        priority=draw(st.integers(-2, 2)),
        replaces=draw(st.sampled_from([None, "bkg-1"])),
    )
    if request.kind is JOB:
        request = replace(request, start=minute(now))
    usage = UsageView(tuple(draw(st.lists(holdings(), max_size=6))), tuple(draw(st.lists(OPEN, max_size=4))))
    return Case(request, draw(POLICIES), usage, minute(now))


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


thorough = examples(200, suppress_health_check=list(HealthCheck))


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


def asked(**fields: object) -> RuleRequest:
    given_: dict[str, object] = {
        "kind": BOOKING,
        "user": "ann",
        "gpus": 2,
        "duration": timedelta(hours=2),
        "gpu_type": "h100",
        "start": minute(60),
    }
    return RuleRequest(**{**given_, **fields})  # type: ignore[arg-type]


def policy_of(scope: Scope = Scope(), **fields: object) -> Policy:  # noqa: B008
    return Policy([PolicyRule(scope, Rules(**fields))])  # type: ignore[arg-type]


def test_the_most_specific_scope_wins_field_by_field() -> None:
    policy = Policy(
        [
            PolicyRule(Scope(), Rules(max_gpus=8, max_duration=timedelta(days=1), priority=0)),
            PolicyRule(Scope(gpu_type="h100"), Rules(max_gpus=4)),
            PolicyRule(Scope(project="lab"), Rules(max_gpus=16, priority=1)),
            PolicyRule(Scope(user="ann"), Rules(max_duration=UNLIMITED)),
            PolicyRule(Scope(user="ann", gpu_type="h100"), Rules(max_gpus=6)),
        ]
    )
    ann = policy.limits("ann", "lab", "h100")
    assert ann.max_gpus == Limit(6, Scope(user="ann", gpu_type="h100"))
    assert ann.max_duration == Limit(None, Scope(user="ann"))
    assert ann.priority == Limit(1, Scope(project="lab"))
    assert policy.limits("bob", "lab", "h100").max_gpus == Limit(16, Scope(project="lab"))
    assert policy.limits("bob", None, "h100").max_gpus == Limit(4, Scope(gpu_type="h100"))
    assert policy.limits("bob", None, "t4").max_gpus == Limit(8, Scope())
    assert policy.limits("bob", None, None).max_gpus == Limit(8, Scope())
    assert ann.cooldown is None


def test_a_users_own_quota_does_not_lift_the_projects() -> None:
    policy = Policy(
        [
            PolicyRule(Scope(project="lab"), Rules(max_gpus=4, max_gpu_hours_per_week=10, max_duration=MINUTE)),
            PolicyRule(Scope(project="lab", gpu_type="h100"), Rules(max_gpu_hours_per_week=3)),
            PolicyRule(Scope(user="ann"), Rules(max_gpus=8, max_gpu_hours_per_week=UNLIMITED, max_duration=UNLIMITED)),
        ]
    )
    theirs = Holding("bkg-9", BOOKING, "bob", "lab", "h100", 3, minute(0), minute(90))
    found = check(asked(project="lab"), policy, UsageView((theirs,)), minute(0))
    assert [breach.code for breach in found] == ["max_gpus", "max_gpu_hours_per_week"]
    assert "the limit is 4 at once (project lab)" in found[0].detail
    assert "3 are allowed (project lab, h100)" in found[1].detail
    assert check(asked(), policy, UsageView((theirs,)), minute(0)) == []
    assert [(use.limit.value, use.limit.scope) for use in uses(asked(project="lab"), policy, NOTHING_HELD, minute(0))][
        :2
    ] == [(8, Scope(user="ann")), (4, Scope(project="lab"))]


def test_who_is_told_to_ask_for_fewer_is_told_how_many() -> None:
    policy = policy_of(max_gpus=4)
    for held, advice in (
        (3, "Start at 2030-01-07T01:30Z, or ask for at most 1 GPU."),
        (4, "Start at 2030-01-07T01:30Z."),
    ):
        usage = UsageView((Holding("bkg-9", BOOKING, "ann", None, "h100", held, minute(0), minute(90)),))
        [found] = check(asked(), policy, usage, minute(0))
        assert found.detail.endswith(f"(everybody). {advice}")


def test_every_broken_rule_is_told_at_once_and_says_what_to_do() -> None:
    policy = policy_of(
        max_gpus=1, max_duration=timedelta(hours=1), min_notice=timedelta(hours=3), max_open_bookings=0, priority=0
    )
    found = {breach.code: breach for breach in check(asked(priority=3), policy, NOTHING_HELD, minute(0))}
    assert list(found) == ["max_gpus", "max_duration", "min_notice", "max_open_bookings", "priority"]
    assert found["max_gpus"].detail == ("Asked for: 2 GPUs; the limit is 1 at once (everybody). Ask for at most 1 GPU.")
    assert found["max_duration"].detail == "Asked for: 2 hours; the limit is 1 hour (everybody). Ask for less time."
    assert found["min_notice"].possible_from == minute(180)


def test_a_request_that_touches_what_is_held_is_not_counted_with_it() -> None:
    policy = policy_of(max_gpus=2)
    before = Holding("bkg-1", BOOKING, "ann", None, "h100", 2, minute(0), minute(60))
    after = Holding("bkg-2", BOOKING, "ann", None, "h100", 2, minute(180), minute(300))
    assert check(asked(), policy, UsageView((before, after)), minute(0)) == []
    late = asked(start=minute(61))
    [broken] = check(late, policy, UsageView((before, after)), minute(0))
    assert broken.possible_from == minute(300)


def test_a_week_ends_on_monday_at_midnight_utc() -> None:
    policy = policy_of(max_gpu_hours_per_week=10)
    used = Holding("job-1", JOB, "ann", None, "h100", 5, minute(-120), minute(0))
    usage = UsageView((used,))
    assert check(asked(start=minute(0), duration=timedelta(hours=5)), policy, usage, minute(-60)) == []
    [broken] = check(asked(start=minute(-60), duration=timedelta(hours=1)), policy, usage, minute(-60))
    assert broken.possible_from == minute(0)
    assert "in the week from 2029-12-31 (UTC), where 10 are taken; 10 are allowed" in broken.detail


def test_what_ended_earlier_in_the_week_has_to_be_known() -> None:
    policy = policy_of(max_gpu_hours_per_week=10, cooldown=timedelta(days=8))
    request = asked(start=minute(3000))
    known = known_from(request, policy.limits("ann", None, "h100"), minute(0))
    assert known == minute(3000) - timedelta(days=8)
    without = policy_of(max_gpu_hours_per_week=10).limits("ann", None, "h100")
    assert known_from(request, without, minute(0)) == MONDAY


def test_a_scope_is_read_back() -> None:
    for scope in (Scope(), Scope(user="a.b@c"), Scope(project="p", gpu_type="h100"), Scope(gpu_type="h100")):
        assert Scope.parse(str(scope)) == scope
    for wrong in ("", "ann", "user:", "user:a,user:b", "user:a,project:b", "default,user:a", "users:a"):
        with pytest.raises(ValueError, match=r"write|not both"):
            Scope.parse(wrong)


def test_what_counts_against_each_limit_is_told() -> None:
    policy = policy_of(max_gpus=8, max_gpu_hours_per_week=100, max_open_bookings=3, max_duration=UNLIMITED)
    held = Holding("bkg-1", BOOKING, "ann", None, "h100", 3, minute(0), minute(120))
    usage = UsageView((held,), (OpenBooking("bkg-1", "ann", None, "h100", minute(120)),))
    found = {use.name: (use.limit.value, use.used) for use in uses(asked(), policy, usage, minute(0))}
    assert found == {
        RuleName.MAX_GPUS: (8, 3),
        RuleName.MAX_GPU_HOURS_PER_WEEK: (100, 6.0),
        RuleName.MAX_DURATION: (None, None),
        RuleName.MAX_OPEN_BOOKINGS: (3, 1),
    }


def test_a_project_quota_counts_all_members_and_a_type_quota_this_type() -> None:
    theirs = UsageView((Holding("bkg-1", BOOKING, "bob", "lab", "h100", 3, minute(0), minute(600)),))
    project = policy_of(Scope(project="lab"), max_gpus=4)
    assert [breach.code for breach in check(asked(project="lab"), project, theirs, minute(0))] == ["max_gpus"]
    assert check(asked(), project, theirs, minute(0)) == []
    mine = UsageView((Holding("bkg-1", BOOKING, "ann", None, "t4", 3, minute(0), minute(600)),))
    assert check(asked(), policy_of(Scope(gpu_type="h100"), max_gpus=4), mine, minute(0)) == []
    assert check(asked(), policy_of(max_gpus=4), mine, minute(0)) != []


def test_what_starts_soon_is_relaxed_and_what_starts_later_is_not() -> None:
    policy = policy_of(
        max_gpus=1,
        relaxed_if_starts_within=(Relaxation(timedelta(hours=2), frozenset({RuleName.MAX_GPUS})),),
    )
    assert check(asked(start=minute(120)), policy, NOTHING_HELD, minute(0)) == []
    assert check(asked(start=minute(121)), policy, NOTHING_HELD, minute(0)) != []
    assert check(asked(kind=JOB, start=None), policy, NOTHING_HELD, minute(0)) != []


def test_a_change_that_keeps_the_start_is_not_held_to_notice() -> None:
    policy = policy_of(min_notice=timedelta(hours=1), max_advance=timedelta(minutes=5))
    assert check(asked(start=minute(-30), keeps_start=True), policy, NOTHING_HELD, minute(0)) == []
    assert check(asked(start=minute(-30)), policy, NOTHING_HELD, minute(0)) != []


def test_a_cooldown_lies_before_and_after_a_booking() -> None:
    policy = policy_of(cooldown=timedelta(minutes=30))
    usage = UsageView((Holding("bkg-1", BOOKING, "ann", None, "h100", 2, minute(200), minute(300)),))
    for start, until in ((50, 170), (331, 400)):
        fits = asked(start=minute(start), duration=(until - start) * MINUTE)
        assert check(fits, policy, usage, minute(0)) == []
    for start, until in ((50, 171), (329, 400)):
        [broken] = check(asked(start=minute(start), duration=(until - start) * MINUTE), policy, usage, minute(0))
        assert broken.possible_from == minute(330)
    other_type = asked(start=minute(250), gpu_type="t4")
    assert check(other_type, policy, usage, minute(0)) == []


def test_what_can_be_asked_later_says_when() -> None:
    [advance] = check(asked(start=minute(600)), policy_of(max_advance=timedelta(hours=1)), NOTHING_HELD, minute(0))
    assert advance.ask_from == minute(540)
    assert advance.possible_from is None
    open_ = tuple(OpenBooking(f"bkg-{n}", "ann", None, "h100", minute(100 * n)) for n in range(1, 4))
    [bookings] = check(asked(), policy_of(max_open_bookings=2), UsageView((), open_), minute(0))
    assert bookings.ask_from == minute(200)


def test_weeks_and_minutes() -> None:
    assert week_start(MONDAY) == MONDAY
    assert week_start(MONDAY - timedelta(microseconds=1)) == MONDAY - timedelta(days=7)
    assert whole_minute(MONDAY) == MONDAY
    assert whole_minute(MONDAY + timedelta(microseconds=1)) == minute(1)


def test_a_scope_names_a_user_or_a_project() -> None:
    with pytest.raises(ValueError, match="not both"):
        Scope(user="ann", project="p")
    with pytest.raises(ValueError, match="same scope"):
        Policy([PolicyRule(Scope(), Rules()), PolicyRule(Scope(), Rules(max_gpus=1))])
    assert str(Scope(user="ann", gpu_type="h100")) == "user:ann,gpu_type:h100"
    assert str(Scope()) == "default"
