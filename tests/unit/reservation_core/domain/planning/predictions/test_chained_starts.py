"""Predicted starts of jobs that wait for others: from the predictions of these, and never after the promise."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.plan import Commitment, Need, WaitEstimate, Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.predictions.start_predictor import StartPredictor
from reservation_core.domain.planning.run_times import RunTime
from tests.unit.reservation_core.domain.planning.chains.test_chain_slots import decide_all
from tests.unit.reservation_core.domain.planning.worlds import T0, at, held, job, node, snapshot

SHARES = [0.2] * 9 + [0.6] * 3


def taught(shares: list[float]) -> StartPredictor:
    """A predictor that knows how long jobs of an hour ran."""
    predictor = StartPredictor()
    predictor.learn([RunTime(number, 1, 1, "h100", 3600, share * 3600, T0) for number, share in enumerate(shares, 9)])
    for wait in (1, 600, 6000) * 10:
        predictor._calibration.learn(wait, wait)
    return predictor


def after(seq: int, *needs: str, by_start: bool = False) -> Waiting:
    beside = int(timedelta(minutes=2).total_seconds() * 1e6)
    return replace(job(seq, minutes=60), needs=tuple(Need(other, by_start, beside) for other in needs))


def predicted(
    rows: list[Commitment], *jobs: Waiting, shares: list[float] = SHARES, gpus: int = 4
) -> dict[str, tuple[float, float]]:
    """p50 and p90 of the jobs that wait for others, in minutes after T0."""
    planner = CalendarPicture(snapshot([node("n0", gpus, first_id=1)], rows, ()))
    for one in jobs:
        planner.set_reservation(one.id, one, ())
    decide_all(planner)
    found = taught(shares).predict(planner, planner.estimate_waits(T0, 100), T0)
    dependants = {one.id: one for one in found if one.id in planner.common.dependants}
    for one in dependants.values():
        assert one.position is None
        assert one.estimated_start_at is not None
        assert one.p90 is not None
        assert one.p90 <= one.estimated_start_at
    return {name: minutes(one) for name, one in dependants.items()}


def minutes(estimate: WaitEstimate) -> tuple[float, float]:
    assert estimate.p50 is not None
    assert estimate.p90 is not None
    return (estimate.p50 - T0).total_seconds() / 60, (estimate.p90 - T0).total_seconds() / 60


def test_a_chain_is_predicted_from_what_it_waits_for_and_how_long_that_runs() -> None:
    """Most run for a fifth of an hour, and some for three: each is likely to begin as the one before is over."""
    found = predicted([held("runs", 1, 0, 60)], after(1, "runs"), after(2, "job-1"), after(3, "job-2", by_start=True))
    assert found == {"job-1": (12, 36), "job-2": (24, 72), "job-3": (24, 74)}


def test_the_latest_of_the_others_counts() -> None:
    rows = [held("long", 1, -30, 60), held("short", 2, 0, 60)]
    # The long one has run for a third of its time: of those that did, all ran for three fifths.
    [(p50, p90)] = predicted(rows, after(1, "long", "short")).values()
    assert (p50, p90) == (pytest.approx(24), pytest.approx(36))


def test_no_start_is_predicted_after_its_promise() -> None:
    assert predicted([held("runs", 1, 0, 60)], after(1, "runs"), shares=[1.0] * 12) == {"job-1": (60, 60)}


def test_where_others_wait_its_promise_is_what_is_sure() -> None:
    rows = [held(f"r{gpu}", gpu, 0, 60) for gpu in (1, 2, 3)]
    found = predicted(rows, after(1, "r1"), job(2, 2, minutes=60), gpus=3)
    assert found["job-1"] == (12, 60)


def test_those_count_that_have_its_gpus_before_it() -> None:
    """A job that runs, one that waits, another that waits for others, and a booking."""
    rows = [held("short", 1, -30, 30), held("long", 2, 0, 60)]
    waits = replace(after(1, "short"), gpus=2)
    assert predicted(rows, waits, gpus=2) == {"job-1": (12, 36)}
    found = predicted([held("runs", 1, 0, 60)], after(1, "runs"), after(2, "runs"), gpus=1)
    assert found == {"job-1": (12, 36), "job-2": (24, 72)}
    booked = held("booked", 1, 60, 90, is_held=False)
    assert predicted([held("runs", 1, 0, 60), booked], after(1, "runs"), gpus=1) == {"job-1": (90, 90)}
    assert predicted([held("runs", 1, 0, 60)], after(1, "runs"), job(2, minutes=60), gpus=1)["job-1"][1] == 120


def test_nothing_is_said_where_nothing_is_known() -> None:
    """Of the run times of jobs, of one of the others, or of the start itself."""
    runs = held("runs", 1, 0, 60)
    assert predicted([runs], after(1, "runs"), shares=[]) == {}
    assert predicted([replace(runs, preemptible=True)], after(1, "runs")) == {}
    assert predicted([held("late", 1, -60, 0)], after(1, "late")) == {}
    assert predicted([runs], after(1, "runs", "nobody")) == {}


def test_predictions_of_jobs_in_the_queue_are_as_without_dependants() -> None:
    """Nor are dependants what predictions are judged by."""
    rows = [held(f"r{gpu}", gpu, 0, 60) for gpu in (1, 2)]
    answers = []
    for dependants in ((), (after(5, "r1"), after(6, "job-2"))):
        planner = CalendarPicture(snapshot([node("n0", 2, first_id=1)], rows, ()))
        for one in (job(2, 2, minutes=60), job(3, 1, minutes=30), *dependants):
            planner.set_reservation(one.id, one, ())
        decide_all(planner)
        predictor = taught(SHARES)
        found = predictor.predict(planner, planner.estimate_waits(T0, 100), T0)
        answers.append([(one.id, one.p50, one.p90) for one in found if one.id not in planner.common.dependants])
        for seq in (5, 6):
            predictor.note_start(f"job-{seq}", at(10))
        assert predictor.calibration() is None
    assert answers[0] == answers[1]
    assert answers[0][0][1] is not None
