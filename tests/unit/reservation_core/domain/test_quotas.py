"""Who is let into the line: never more at once than quotas allow, and nobody without one is looked at."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from reservation_core.domain.limits import Policy, PolicyRule, Rules, Scope
from reservation_core.domain.model import ReasonCode, ReservationKind
from reservation_core.domain.plan import Waiting
from reservation_core.domain.quota_windows import Held, gpu_time, peak, week_start
from reservation_core.domain.quotas import Quotas, counts_hours, limits_starts, spent
from reservation_core.domain.rules import Holding, UsageView
from tests.unit.reservation_core.domain.worlds import MINUTE, T0, at

NAMES = {1: "ann", 2: "bob"}
LIMIT = 5
HOURS = 2.0


def waiting(number: int, owner: int, gpus: int, minutes: int, gpu_type: str | None = "a") -> Waiting:
    return Waiting(f"job-{number}", gpus, 1, gpu_type, minutes * MINUTE, 0, number, owner=owner)


JOBS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 90), st.sampled_from(["a", "b", None])), max_size=12
).map(lambda found: [waiting(number, *each) for number, each in enumerate(found)])
HELD = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from("ab"), st.integers(-60, 60), st.integers(1, 90)), max_size=5
).map(
    lambda found: [
        Holding(f"h-{n}", ReservationKind.JOB, "ann", None, gpu_type, gpus, at(start), at(start + length))
        for n, (gpus, gpu_type, start, length) in enumerate(found)
    ]
)
POLICY = Policy(
    [PolicyRule(Scope(user="ann", gpu_type="a"), Rules(max_gpus=LIMIT, max_gpu_hours_per_week=HOURS)),
     PolicyRule(Scope(user="ann"), Rules(max_gpus=2 * LIMIT))]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(JOBS, HELD)
def test_who_is_in_stays_within_the_quota_and_only_then(jobs: list[Waiting], held: list[Holding]) -> None:
    quotas = Quotas(POLICY, UsageView(tuple(held)), NAMES, ("a", "b"), T0)
    mine = [Held(each.gpus, each.start, each.end) for each in held if each.gpu_type == "a"]
    everything = [Held(each.gpus, each.start, each.end) for each in held]
    for job in jobs:
        reason = quotas.let_in(job)
        asked = Held(job.gpus, T0, T0 + job.length)
        fits_type = peak(mine, T0, asked.end) + job.gpus <= LIMIT and all(
            gpu_time([*mine, asked], week, week + timedelta(days=7)) <= timedelta(hours=HOURS)
            for week in {week_start(T0), week_start(asked.end - timedelta(microseconds=1))}
        )
        fits_all = peak(everything, T0, asked.end) + job.gpus <= 2 * LIMIT
        bound = {"a": fits_type, "b": fits_all, None: fits_type and fits_all}[job.gpu_type]
        assert (reason is None) == (job.owner == 2 or bound)
        if reason is not None:
            assert reason.code is ReasonCode.QUOTA_REACHED
        elif job.owner == 1:
            everything.append(asked)
            if job.gpu_type != "b":
                mine.append(asked)


def test_jobs_within_bookings_are_the_bookings() -> None:
    quotas = Quotas(POLICY, UsageView(), NAMES, ("a",), T0)
    job = Waiting("job-1", 64, 1, "a", MINUTE, 0, 1, owner=1, booking_id="bkg-1")
    assert quotas.let_in(job) is None


@given(st.integers(0, 10**7), st.integers(1, 10_000))
def test_what_was_spent_is_the_same_sum_in_the_past(seconds: int, minutes: int) -> None:
    since, now = at(0), at(minutes)
    time = timedelta(seconds=seconds)
    holding = spent("ann", None, "a", time, since, now)
    assert since <= holding.start <= holding.end <= now
    assert abs(holding.gpus * (holding.end - holding.start) - time) <= holding.gpus * timedelta(microseconds=1)


def test_which_policies_bound_what_runs() -> None:
    def said(**fields: object) -> Policy:
        return Policy([PolicyRule(Scope(), Rules(**fields))])  # type: ignore[arg-type]

    assert not limits_starts(Policy())
    assert not limits_starts(said(max_duration=MINUTE, cooldown=MINUTE, priority=1))
    assert limits_starts(said(max_gpus=1))
    assert limits_starts(said(max_gpu_hours_per_week=1.0))
    assert counts_hours(said(max_gpu_hours_per_week=1.0))
    assert not counts_hours(said(max_gpus=1))
