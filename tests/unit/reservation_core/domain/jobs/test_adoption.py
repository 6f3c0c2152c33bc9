"""Pods that the ledger has forgotten: whose they are, what they must say, and that adoption keeps a life legal."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.changes import (
    Adopted,
    CancelRequested,
    Event,
    HeldGpu,
    NodeFenced,
    PodsGone,
    Record,
    ReleaseGpus,
    StartFailed,
    TakeGpus,
    WakePlanner,
)
from reservation_core.domain.jobs.adoption import PodStanding, Unadoptable, adoption_of, standing
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.model import PodHolding, PodName, PodPhase, PodStatus, Reservation
from reservation_core.domain.statuses import FINAL_STATUSES, LIVE_STATUSES, JobStatus, ReasonCode
from tests.examples import examples
from tests.unit.reservation_core.domain.jobs.life.lives import (
    EVENTS,
    HOUR,
    NO_IMAGE,
    STARTS,
    T0,
    TYPED,
    Allocated,
    ending,
    final,
    queued,
    running,
    starting,
)

CARDS = (HeldGpu("a", 0, 0),)
ADOPTED = Adopted(2, CARDS, T0 + HOUR)


def taken_back() -> Reservation:
    """Ending, to be queued again."""
    return transition(starting(), StartFailed(NO_IMAGE, STARTS), T0)[0]


def requeued() -> Reservation:
    """Waiting for the second time."""
    return transition(taken_back(), PodsGone(), T0)[0]


@pytest.mark.parametrize(
    ("row", "attempt", "what"),
    [
        (None, 1, PodStanding.UNKNOWN),
        (queued(), 1, PodStanding.FORGOTTEN),
        (requeued(), 1, PodStanding.LEFT_OVER),
        (requeued(), 2, PodStanding.FORGOTTEN),
        (starting(), 0, PodStanding.LEFT_OVER),
        (starting(), 1, PodStanding.KNOWN),
        (starting(), 2, PodStanding.FORGOTTEN),
        (running(), 1, PodStanding.KNOWN),
        (running(), 2, PodStanding.UNKNOWN),
        (ending(), 1, PodStanding.KNOWN),
        (ending(), 2, PodStanding.UNKNOWN),
        (taken_back(), 2, PodStanding.FORGOTTEN),
        (final(), 1, PodStanding.LEFT_OVER),
        (final(), 9, PodStanding.LEFT_OVER),
    ],
)
def test_what_a_pod_is_to_its_row(row: Reservation | None, attempt: int, what: PodStanding) -> None:
    assert standing(row, attempt) is what


def pod(rank: int = 0, node: str = "a", *indices: int, pods: int = 1, attempt: int = 1) -> PodStatus:
    holding = PodHolding(node, indices or (0,), pods, T0, T0 + HOUR)
    return PodStatus(PodName("job-1", attempt, rank), PodPhase.RUNNING, holding=holding)


def test_whole_pods_are_adopted_with_their_cards() -> None:
    row = replace(queued(), gpus=2, nodes=2)
    found = adoption_of(row, [pod(1, "b", 3, 1, pods=2), pod(0, "a", 0, 1, pods=2)])
    cards = (HeldGpu("a", 0, 0), HeldGpu("a", 1, 0), HeldGpu("b", 1, 1), HeldGpu("b", 3, 1))
    assert found == Adopted(1, cards, T0 + HOUR)


@pytest.mark.parametrize(
    ("row", "pods", "said"),
    [
        (queued(), [pod(), pod(attempt=2)], "2 attempts"),
        (replace(queued(), nodes=2), [pod(pods=2)], "1 of the 2 pods"),
        (queued(), [pod(), pod(1, "b")], "2 of the 1 pods"),
        (queued(), [replace(pod(), holding=None)], "does not say"),
        (queued(), [pod(0, "a", 0, 1)], "holds GPUs 0,1, and its job asks for 1"),
        (replace(queued(), gpus=2), [pod(0, "a", 1, 1)], "holds GPUs 1,1"),
        (queued(), [pod(pods=2)], "does not match its job"),
        (replace(queued(), nodes=2), [pod(pods=2), pod(1, pods=2)], "not on different nodes"),
    ],
)
def test_what_contradicts_itself_or_its_job_is_not(row: Reservation, pods: list[PodStatus], said: str) -> None:
    found = adoption_of(row, pods)
    assert isinstance(found, Unadoptable)
    assert said in found.detail


@pytest.mark.parametrize("row", [queued(), requeued()])
def test_what_waits_holds_its_cards_again(row: Reservation) -> None:
    after, effects = transition(row, ADOPTED, T0)
    assert (after.status, after.attempt, after.range_end) == (JobStatus.STARTING, 2, T0 + HOUR)
    record = Record("adopted", data={"attempt": 2, "gpus": ["a/0"]})
    assert effects == (TakeGpus(CARDS, T0 + HOUR), WakePlanner(), record)


@pytest.mark.parametrize("row", [starting(), taken_back()])
def test_the_cards_of_an_older_attempt_go_back(row: Reservation) -> None:
    after, effects = transition(row, ADOPTED, T0)
    assert (after.status, after.attempt, after.outcome) == (JobStatus.STARTING, 2, None)
    assert effects[:2] == (ReleaseGpus(), TakeGpus(CARDS, T0 + HOUR))


@pytest.mark.parametrize("row", [running(), ending(), final()])
def test_what_runs_or_ends_is_not_moved_to_another_attempt(row: Reservation) -> None:
    assert transition(row, ADOPTED, T0) == (row, ())


@pytest.mark.parametrize("row", [requeued(), starting(), taken_back()])
def test_an_attempt_that_is_not_newer_is_nothing(row: Reservation) -> None:
    assert transition(row, replace(ADOPTED, attempt=1), T0) == (row, ())


def test_what_runs_on_a_fenced_node_is_lost_and_what_starts_there_waits_again() -> None:
    fenced = NodeFenced("n7", "root", "No power.", STARTS)
    lost, effects = transition(running(), fenced, T0)
    assert (lost.outcome, lost.reason.code) == (JobStatus.FAILED, ReasonCode.NODE_LOST)
    assert "n7 was fenced by root (No power.)" in lost.reason.detail
    assert [effect.actor for effect in effects if isinstance(effect, Record)] == ["root"]
    assert transition(starting(), fenced, T0)[0].outcome is JobStatus.QUEUED
    for row in (queued(), ending(), final()):
        assert transition(row, fenced, T0) == (row, ())


ADOPTIONS = st.builds(
    Adopted,
    attempt=st.integers(1, 6),
    cards=st.just(CARDS),
    range_end=st.integers(-60, 7200).map(lambda s: T0 + timedelta(seconds=s)),
)


@examples(600)
@given(st.lists(st.tuples(st.one_of(EVENTS, ADOPTIONS, ADOPTIONS), st.integers(0, 2000)), max_size=25))
def test_adoptions_at_any_time_leave_a_legal_life(events: list[tuple[Event | Allocated, int]]) -> None:
    row, now, opened = queued(), T0, 0
    for event, seconds in events:
        now += timedelta(seconds=seconds)
        if isinstance(event, Allocated):
            if row.status is JobStatus.QUEUED:
                row, opened = starting(row, now), opened + 1
            continue
        before = row
        try:
            row, effects = transition(before, event, now)
        except TYPED:
            continue
        kinds = [type(effect) for effect in effects]
        opened += kinds.count(TakeGpus) - kinds.count(ReleaseGpus)
        # The ledger has rows of one attempt while it is alive, and none otherwise.
        assert opened == (row.status in LIVE_STATUSES)
        assert row.attempt >= before.attempt
        assert (TakeGpus in kinds) == (row.attempt > before.attempt)
        assert (row.outcome is not None) == (row.status is JobStatus.ENDING)
        assert before.status not in FINAL_STATUSES or row == before
        if row.status is JobStatus.RUNNING:
            assert row.started_at is not None
            assert row.ends_at is not None
        if isinstance(event, CancelRequested):
            assert row.status is not JobStatus.QUEUED
