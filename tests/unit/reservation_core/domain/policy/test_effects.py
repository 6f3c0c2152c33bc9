"""Effects of a change of the policy, against a look at everything that everybody holds."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.model import ReservationKind
from reservation_core.domain.policy.effects import OpenReservation, affected_by
from reservation_core.domain.policy.limits import QUOTAS, UNLIMITED, Policy, PolicyRule, Rules, Scope
from reservation_core.domain.policy.rules import (
    NOTHING_HELD,
    Holding,
    OpenBooking,
    RuleRequest,
    UsageView,
    check,
)
from tests.examples import examples

NOW = datetime(2030, 1, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
USERS, PROJECTS, TYPES = ("ann", "ben"), (None, "vision"), ("h100", "t4")


@st.composite
def opens(draw: st.DrawFn) -> list[OpenReservation]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from([ReservationKind.JOB, ReservationKind.BOOKING]))
        waits = kind is ReservationKind.JOB and draw(st.booleans())
        found.append(
            OpenReservation(
                f"r-{number}",
                kind,
                draw(st.sampled_from(USERS)),
                draw(st.sampled_from(PROJECTS)),
                draw(st.integers(1, 4)),
                draw(st.sampled_from(TYPES)),
                None if waits else NOW + draw(st.integers(-100, 400)) * HOUR,
                draw(st.integers(1, 60)) * HOUR,
                0,
            )
        )
    return found


LIMITS = st.builds(
    Rules,
    max_gpus=st.sampled_from([None, UNLIMITED, 1, 3, 6]),
    max_gpu_hours_per_week=st.sampled_from([None, 10.0, 80.0]),
    max_duration=st.sampled_from([None, 20 * HOUR]),
    max_open_bookings=st.sampled_from([None, 1, 2]),
    cooldown=st.sampled_from([None, 30 * HOUR, 300 * HOUR]),
)
SCOPES = st.builds(Scope, st.sampled_from([None, "ann"]), st.none(), st.sampled_from([None, "h100"])) | st.just(
    Scope(None, "vision", None)
)
POLICIES = st.dictionaries(SCOPES, LIMITS, max_size=3).map(
    lambda rules: Policy(PolicyRule(scope, each) for scope, each in rules.items() if not each.is_empty)
)


def _held(each: OpenReservation) -> list[Holding]:
    if each.start is None:
        return []
    return [
        Holding(
            each.id, each.kind, each.user, each.project, each.gpu_type or "", each.gpus, each.start,
            each.start + each.duration, made_at=NOW,
        )
    ]  # fmt: skip


@examples(150)
@given(opens(), POLICIES, POLICIES)
def test_it_is_what_a_look_at_everything_says(opened: list[OpenReservation], before: Policy, after: Policy) -> None:
    holdings = [held for each in opened for held in _held(each)]
    usage = UsageView(
        tuple(holdings),
        tuple(
            OpenBooking(each.id, each.user, each.project, each.gpu_type, each.start + each.duration)
            for each in opened
            if each.kind is ReservationKind.BOOKING and each.start is not None
        ),
    )
    wanted = {}
    for each in opened:
        request = RuleRequest(
            kind=each.kind, user=each.user, gpus=each.gpus, duration=each.duration, gpu_type=each.gpu_type,
            project=each.project, start=each.start, replaces=each.id, keeps_start=True,
        )  # fmt: skip
        seen = NOTHING_HELD if each.start is None else usage
        old, new = ({rule.code for rule in check(request, policy, seen, NOW)} for policy in (before, after))
        more = new - old
        if each.start is None:
            more &= {name.value for name in QUOTAS}  # nothing else keeps a job waiting
        if more:
            wanted[each.id] = more
    found = affected_by(before, after, opened, holdings, NOW)
    assert {one.reservation.id: {rule.code for rule in one.broken} for one in found} == wanted
