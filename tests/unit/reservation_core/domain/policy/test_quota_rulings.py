"""Which policies bound what runs, and what is said of starts and slots as they are written."""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.plan import Asker, PlacedGpu, PlannedSlot, Start
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_rulings import QuotaRuling, counts_hours, limits_starts, spent
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.statuses import ReasonCode, ReservationKind
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, at

NAMES = {1: "ann", 2: "bob"}
ANN = Asker(1, None, "a")
TWO = Policy([PolicyRule(Scope(user="ann"), Rules(max_gpus=2, max_gpu_hours_per_week=2.0))])
CARDS = tuple(PlacedGpu(number, "n0", number, 0) for number in range(2))


def holding(
    name: str, start: int, end: int, *, gpus: int = 1, made: int | None = None, planned: bool = False
) -> Holding:
    made_at = None if made is None else at(made)
    return Holding(name, ReservationKind.JOB, "ann", None, "a", gpus, at(start), at(end), planned, made_at)


def start(name: str, minutes: int, *, now: datetime = T0, had_slot: bool = False, asker: Asker | None = ANN) -> Start:
    return Start(name, now, now + minutes * MINUTE, CARDS, had_slot=had_slot, asker=asker)


def test_what_was_allowed_counts_for_the_next() -> None:
    ruling = QuotaRuling(TWO, NAMES, [])
    assert ruling.refuses_start(start("job-1", 10)) is None
    refused = ruling.refuses_start(start("job-2", 10))
    assert refused is not None
    assert refused.code is ReasonCode.QUOTA_REACHED
    assert "Asked for: 2 GPUs beside 2 of the same user now; the limit is 2 at once (user ann)" in refused.detail
    assert ruling.refuses_start(start("job-3", 10, asker=None)) is None
    slot = PlannedSlot("job-2", at(10), at(20), CARDS, asker=ANN)
    assert ruling.refuses_slot(slot) is None
    # Its own slot is no hindrance, that of another is.
    assert ruling.refuses_slot(replace(slot, start=at(12), end=at(22))) is None
    assert ruling.refuses_slot(PlannedSlot("job-4", at(20), at(30), CARDS, asker=ANN)) is not None
    assert ruling.refuses_slot(PlannedSlot("job-4", at(22), at(30), CARDS, asker=ANN)) is None
    assert ruling.refuses_slot(PlannedSlot("job-5", at(0), at(30), CARDS)) is None


def test_what_was_given_after_a_slot_takes_nothing_from_it() -> None:
    own = holding("job-1", 0, 10, gpus=2, made=-5, planned=True)
    before, after = holding("job-2", -9, 10, made=-6), holding("bkg-3", -1, 10, made=-1)
    in_slot = start("job-1", 10, now=T0 + timedelta(seconds=1), had_slot=True)
    assert QuotaRuling(TWO, NAMES, [own, after]).in_slot(in_slot)
    assert QuotaRuling(TWO, NAMES, [own, after]).refuses_start(in_slot) is None
    # Older usage does count: a pod that overruns, or a rule that was made smaller.
    assert QuotaRuling(TWO, NAMES, [own, before]).refuses_start(in_slot) is not None
    # Before the slot has come, everything does.
    early = replace(in_slot, start=at(-1), end=at(9))
    assert not QuotaRuling(TWO, NAMES, [own, after]).in_slot(early)
    assert QuotaRuling(TWO, NAMES, [own, after]).refuses_start(early) is not None
    # Of what was given back nobody knows since when it was there.
    gone = spent("ann", None, "a", timedelta(hours=2), at(-600), at(-1))
    assert QuotaRuling(TWO, NAMES, [own, gone]).refuses_start(in_slot) is None
    assert QuotaRuling(TWO, NAMES, [own, gone]).refuses_start(early) is not None


@given(st.integers(0, 10**7), st.integers(1, 10_000))
def test_what_was_spent_is_the_same_sum_in_the_past(seconds: int, minutes: int) -> None:
    since, now = at(0), at(minutes)
    time = timedelta(seconds=seconds)
    found = spent("ann", None, "a", time, since, now)
    assert since <= found.start <= found.end <= now
    assert abs(found.gpus * (found.end - found.start) - time) <= found.gpus * timedelta(microseconds=1)


def test_which_policies_bound_what_runs() -> None:
    def said(**fields: object) -> Policy:
        return Policy([PolicyRule(Scope(), Rules(**fields))])  # type: ignore[arg-type]

    assert not limits_starts(Policy())
    assert not limits_starts(said(max_duration=MINUTE, cooldown=MINUTE, priority=1))
    assert limits_starts(said(max_gpus=1))
    assert limits_starts(said(max_gpu_hours_per_week=1.0))
    assert counts_hours(said(max_gpu_hours_per_week=1.0))
    assert not counts_hours(said(max_gpus=1))
