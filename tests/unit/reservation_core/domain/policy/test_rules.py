"""What each rule says to somebody who breaks it, and what it counts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.policy.limits import UNLIMITED, Limit, Policy, PolicyRule, Relaxation, Rules
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.policy.quota_windows import week_start, whole_minute
from reservation_core.domain.policy.rules import (
    NOTHING_HELD,
    Holding,
    OpenBooking,
    RuleRequest,
    UsageView,
    check,
    known_from,
    uses,
)
from reservation_core.domain.statuses import ReservationKind
from tests.unit.reservation_core.domain.policy.rule_cases import BOOKING, JOB, MINUTE, MONDAY, minute


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
        [found] = check(asked(keeps_start=True), policy, usage, minute(0))
        assert found.detail.endswith(f"(everybody). {advice}"), "a changed booking can be moved"
        assert found.possible_from is not None
        [found] = check(asked(kind=JOB, extends=True), policy, usage, minute(0))
        assert found.detail.endswith("(everybody). Ask for less time."), "an extension starts at no other time"
        assert found.possible_from is None


@pytest.mark.parametrize(
    ("kind", "held", "advice"),
    [
        (BOOKING, 0, "at most 4 GPUs"),
        (BOOKING, 3, "at most 1 GPU, or for another time and at most 4 GPUs"),
        (BOOKING, 4, "another time and at most 4 GPUs"),
        (JOB, 4, "at most 4 GPUs"),
    ],
)
def test_advice_on_a_request_over_the_limit_works(kind: ReservationKind, held: int, advice: str) -> None:
    holding = Holding("bkg-9", BOOKING, "ann", None, "h100", held, minute(0), minute(90))
    usage = UsageView((holding,)) if held else NOTHING_HELD
    [found] = check(replace(asked(kind=kind), gpus=8), policy_of(max_gpus=4), usage, minute(0))
    assert found.detail.endswith(f"Ask for {advice}.")


def test_of_a_limit_of_none_nothing_smaller_is_advised() -> None:
    [found] = check(asked(), policy_of(max_gpus=0), NOTHING_HELD, minute(0))
    assert found.detail.endswith("Ask an administrator for more.")


def test_every_broken_rule_is_told_at_once_and_says_what_to_do() -> None:
    policy = policy_of(
        max_gpus=1, max_duration=timedelta(hours=1), min_notice=timedelta(hours=3), max_open_bookings=0, priority=0
    )
    found = {breach.code: breach for breach in check(asked(priority=3), policy, NOTHING_HELD, minute(0))}
    assert list(found) == ["max_gpus", "max_duration", "min_notice", "max_open_bookings", "priority"]
    assert found["max_gpus"].detail == ("Asked for: 2 GPUs; the limit is 1 at once (everybody). Ask for at most 1 GPU.")
    assert found["max_duration"].detail == "Asked for: 2 hours; the limit is 1 hour (everybody). Ask for less time."
    long = replace(asked(), duration=timedelta(days=30, hours=4))
    [_, length, *_] = check(long, policy, NOTHING_HELD, minute(0))
    assert length.detail.startswith("Asked for: 30 days 4 hours; the limit is 1 hour (everybody).")
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


def test_a_job_is_told_no_start_and_of_no_use_where_there_is_none() -> None:
    policy = policy_of(max_gpu_hours_per_week=3)
    request = replace(asked(gpus=1, duration=timedelta(hours=4)), kind=JOB, start=None)
    [broken] = check(request, policy, UsageView(), minute(0))
    assert broken.detail == (
        "4 GPU-hours are asked for in the week from 2030-01-07 (UTC); 3 are allowed (everybody). "
        "Ask for fewer or for less time."
    )


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
    [only] = check(asked(), policy_of(max_open_bookings=1), UsageView((), open_[:1]), minute(0))
    assert only.detail.startswith("Open bookings: 1; the limit is 1 at a time")


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
