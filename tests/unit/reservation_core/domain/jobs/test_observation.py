"""Observations of one pod of a gang, by example."""

from dataclasses import replace
from datetime import timedelta

from reservation_core.domain.changes import EndReached, PodsFinished, PodsRunning
from reservation_core.domain.jobs.lifecycle import transition
from reservation_core.domain.jobs.observation import event_of
from reservation_core.domain.model import PodName, PodPhase, PodStatus, Reservation
from reservation_core.domain.statuses import JobStatus
from tests.unit.reservation_core.domain.jobs.test_cut_short import HOUR, STARTING, T0

GANG = replace(STARTING, nodes=2)


def expired() -> Reservation:
    running, _ = transition(GANG, PodsRunning(T0), T0)
    assert running.ends_at is not None
    return transition(running, EndReached(), running.ends_at)[0]


def ended(rank: int, ran: timedelta, exit_code: int = 0) -> PodStatus:
    return PodStatus(
        PodName(GANG.id, GANG.attempt, rank),
        PodPhase.FINISHED,
        started_at=T0,
        finished_at=T0 + ran,
        exit_code=exit_code,
    )


def test_a_gang_whose_time_was_over_has_not_succeeded_because_one_of_its_pods_had() -> None:
    row = expired()
    first, other = ended(0, HOUR), PodStatus(PodName(GANG.id, GANG.attempt, 1), PodPhase.RUNNING, started_at=T0)
    assert event_of(row, first, [first, other], T0 + 5 * HOUR, 3) is None


def test_a_gang_is_over_when_its_last_pod_is() -> None:
    row = expired()
    first, late, early = ended(0, HOUR), ended(1, 5 * HOUR), ended(1, 2 * HOUR)
    for other, outcome in ((late, JobStatus.EXPIRED), (early, JobStatus.SUCCEEDED)):
        event = event_of(row, first, [first, other], T0 + 6 * HOUR, 3)
        assert isinstance(event, PodsFinished)
        assert transition(row, event, T0 + 6 * HOUR)[0].outcome is outcome
