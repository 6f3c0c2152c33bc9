"""Effects of a change of the policy, against a look at everything that everybody holds."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.policy.effects import OpenReservation, affected_by
from reservation_core.domain.policy.limits import UNLIMITED, Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import QUOTAS, Scope
from reservation_core.domain.policy.rules import NOTHING_HELD, Holding, OpenBooking, RuleRequest, UsageView, check
from reservation_core.domain.statuses import ReservationKind
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
    lambda rules: Policy(PolicyRule(scope, rule) for scope, rule in rules.items() if not rule.is_empty)
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
    holdings = [held for claim in opened for held in _held(claim)]
    usage = UsageView(
        tuple(holdings),
        tuple(
            OpenBooking(claim.id, claim.user, claim.project, claim.gpu_type, claim.start + claim.duration)
            for claim in opened
            if claim.kind is ReservationKind.BOOKING and claim.start is not None
        ),
    )
    wanted = {}
    for claim in opened:
        request = RuleRequest(
            kind=claim.kind, user=claim.user, gpus=claim.gpus, duration=claim.duration, gpu_type=claim.gpu_type,
            project=claim.project, start=claim.start, replaces=claim.id, keeps_start=True,
        )  # fmt: skip
        seen = NOTHING_HELD if claim.start is None else usage
        old, new = ({rule.code for rule in check(request, policy, seen, NOW)} for policy in (before, after))
        more = new - old
        if claim.start is None:
            more &= {name.value for name in QUOTAS}  # nothing else keeps a job waiting
        if more:
            wanted[claim.id] = more
    found = affected_by(before, after, opened, holdings, NOW)
    assert {one.reservation.id: {rule.code for rule in one.broken} for one in found} == wanted


def test_a_job_without_gpus_breaks_no_quota_and_may_be_too_long() -> None:
    held = Holding("r-1", ReservationKind.JOB, "ann", None, "h100", 4, NOW - HOUR, NOW + HOUR)
    rules = Rules(max_gpus=2, max_duration=20 * HOUR)
    after = Policy([PolicyRule(Scope(), rules)])
    job = OpenReservation("r-0", ReservationKind.JOB, "ann", None, 0, "cpu", NOW - HOUR, 30 * HOUR, 0)
    [affected] = affected_by(Policy([]), after, [job], [held], NOW)
    assert [rule.code for rule in affected.broken] == ["max_duration"]
