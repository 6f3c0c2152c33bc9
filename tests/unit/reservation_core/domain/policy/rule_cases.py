"""Requests, policies and what is held, of all kinds: what rules are tried on."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck
from hypothesis import strategies as st

from reservation_core.domain.policy.limits import UNLIMITED, PolicyRule, Relaxation, Rules
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.policy.rules import (
    Holding,
    OpenBooking,
    RuleRequest,
    UsageView,
)
from reservation_core.domain.statuses import ReservationKind
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


thorough = examples(200, suppress_health_check=list(HealthCheck))
