"""Predicted starts of waiting jobs: never after their promise, learnt from what has been, kept within bounds."""

import random
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.predictions import start_predictor
from reservation_core.domain.planning.predictions.queue_run import QueueRun, RunningRows
from reservation_core.domain.planning.predictions.run_time_shares import RunTimeShares
from reservation_core.domain.planning.predictions.start_predictor import StartPredictor
from reservation_core.domain.planning.predictions.wait_calibration import ENOUGH
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.domain.planning.slot_decisions import plan_slots
from reservation_core.domain.planning.standings import BY_AREA
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.simulation.replay import Course, Replay, TraceJob
from tests.examples import examples
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, World, at, held, job, node, snapshot, worlds

HOUR = timedelta(hours=1)


def ran(asked: float, seconds: float, gpus: int = 1) -> RunTime:
    return RunTime(1, gpus, 1, "h100", asked, seconds, T0)


def run_of(picture: Picture, *learnt: RunTime) -> dict[str, float]:
    """When all jobs would start, in minutes after T0."""
    shares = RunTimeShares()
    for run_time in learnt:
        shares.learn(run_time)
    now = picture.catch_up(T0)
    starts = QueueRun(picture, shares, RunningRows(shares), now).starts(picture.queue.jobs, 1000)
    return {job_id: (start - now) / 60e6 for job_id, start in starts.items()}


def planned(picture: Picture) -> Picture:
    while plan_starts(picture, T0, 1000) or plan_slots(picture, T0, 1000, 1000).more:
        pass
    return picture


def taught(*run_times: RunTime, starts: int = ENOUGH) -> StartPredictor:
    """A predictor that has seen waits of each length come as predicted."""
    predictor = StartPredictor()
    predictor.learn(run_times or [ran(600, 600)])
    for wait in (1, 600, 6000) * starts:
        predictor._calibration.learn(wait, wait)
    return predictor


def test_the_run_starts_jobs_in_order_as_those_before_end_as_predicted() -> None:
    rows = [held("r0", 0, -5, 20), held("r1", 1, -5, 40)]
    jobs = [job(1, 2, minutes=30), job(2, minutes=30), job(3, minutes=30)]
    picture = Picture(snapshot([node("a", 2)], rows, jobs))
    # Nothing is learnt: all run for as long as they asked. The second passes the first, for which there is no room.
    assert run_of(picture) == {"job-2": 20, "job-3": 40, "job-1": 70}
    # Jobs run for a fifth of what they ask for; what has run for longer already runs for as long as it asked.
    assert run_of(picture, *[ran(1800, 360)] * 5) == {"job-2": 4, "job-3": 10, "job-1": 20}


def test_a_gang_waits_for_whole_nodes_and_a_job_starts_in_its_slot_at_the_latest() -> None:
    rows = [held("r0", 0, -5, 10), held("r1", 10, -5, 30), held("r2", 11, -5, 60)]
    picture = planned(Picture(snapshot([node("a", 1), node("b", 2, first_id=10)], rows, [job(1, 1, 2), job(2, 2)])))
    assert run_of(picture) == {"job-1": 30, "job-2": 60}


def test_bookings_have_their_gpus_while_they_last() -> None:
    rows = [held("b0", 0, 5, 60, is_held=False), held("r0", 0, -5, 5)]
    assert run_of(Picture(snapshot([node("a", 1)], rows, [job(1)]))) == {"job-1": 60}


def test_no_history_no_prediction() -> None:
    picture = planned(Picture(snapshot([node("a", 1)], [held("r0", 0, -5, 100)], [job(1)])))
    waiting = list(picture.queue.jobs.values())
    assert StartPredictor().predict_starts(picture, waiting, T0) == {}
    assert StartPredictor().calibration() is None
    unpractised = StartPredictor()
    unpractised.learn([ran(600, 600)])
    assert unpractised.predict_starts(picture, waiting, T0) == {}
    assert taught().predict_starts(picture, waiting, T0) == {"job-1": (at(100), at(100))}


def test_estimates_get_their_predictions() -> None:
    picture = CalendarPicture(snapshot([node("a", 1)], [held("r0", 0, -5, 100)], [job(1), job(2, 2)]))
    while picture.plan_slots(T0, 1000, 1000).more:
        picture.plan_starts(T0, 1000)
    estimates = taught().predict(picture, picture.estimate_waits(T0, 10), T0)
    assert [(estimate.p50, estimate.p90) for estimate in estimates] == [(at(100), at(100)), (None, None)]


def test_a_start_is_compared_with_the_first_prediction() -> None:
    picture = planned(Picture(snapshot([node("a", 1)], [held("r0", 0, -5, 10)], [job(1), job(2)])))
    predictor = taught()
    waiting = list(picture.queue.jobs.values())
    assert predictor.predict_starts(picture, waiting, T0)["job-2"] == (at(20), at(20))
    picture.set_reservation("r0", None, ())
    later = at(10)
    assert [start.id for start in plan_starts(picture, later, 10)] == ["job-1"]
    predictor.predict_starts(picture, waiting, later)
    assert predictor.calibration() == (1, 1, 1)
    # A job that is gone is not counted, and one that waits beyond its time is wrong.
    picture.set_reservation("job-2", None, ())
    predictor.predict_starts(picture, [], at(30))
    assert predictor.calibration() == (1, 1, 1)
    assert not predictor._first


@examples(150)
@given(worlds(), st.integers(0, 20), st.floats(0.01, 1), st.integers(0, 90))
def test_p50_is_no_later_than_p90_and_that_no_later_than_the_promise(
    world: World, seed: int, part: float, wrong: int
) -> None:
    picture = planned(world.state())
    chance = random.Random(seed)
    predictor = taught(*[ran(600, 600 * part * chance.random())] * 5)
    for _ in range(ENOUGH):
        for wait in (1, 600, 6000):
            predictor._calibration.learn(wait, wait * chance.lognormvariate(0, 2))
    for _ in range(wrong):
        predictor._calibration.judge(chance.choice((0.5, 0.9)), right=False)
    jobs = list(picture.queue.jobs.values())
    found = predictor.predict_starts(picture, jobs, T0)
    for job_id, slot in picture.ledger.slots.items():
        if job_id in picture.queue.jobs and job_id not in picture.queue.held:
            p50, p90 = found[job_id]
            assert T0 <= p50 <= p90
            assert to_micros(p90) <= max(slot[0], picture.queue.promises.get(job_id, slot[0]), to_micros(T0))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_predictor, "_REMEMBERED", 10)
    jobs = [job(seq) for seq in range(1, 60)]
    picture = planned(Picture(snapshot([node("a", 1)], [held("r0", 0, -5, 100)], jobs)))
    predictor = taught()
    for seq in range(200):
        predictor.predict_starts(picture, jobs, T0 + seq * MINUTE / 10)
    assert len(predictor._first) <= 10
    assert len(predictor._due) <= 41


def trace(seed: int, jobs: int) -> list[TraceJob]:
    """Jobs of 1 to 4 GPUs in bursts, that run for a part of what they ask for, nearly as much as 8 GPUs can do."""
    chance = random.Random(seed)
    answer = []
    moment = T0
    for seq in range(1, jobs + 1):
        moment += chance.expovariate(1 / 0.8) * HOUR if chance.random() < 0.3 else timedelta(seconds=5)
        asked = chance.choice((1, 2, 4, 8)) * HOUR
        waiting = Waiting(
            f"job-{seq}", chance.choice((1, 1, 2, 4)), 1, "h100", asked, 0, seq, owner=chance.randrange(5)
        )
        waiting = replace(waiting, submitted_at=to_micros(moment))
        answer.append(TraceJob(waiting, moment, asked * chance.betavariate(1, 3)))
    return answer


def test_over_a_trace_p50_and_p90_are_right_as_often_as_they_say() -> None:
    predictor = StartPredictor()
    courses = Replay([node("a", 8)], BY_AREA, predictor=predictor).run(trace(7, 600))
    predicted = [course for course in courses.values() if course.predicted is not None]
    assert len(predicted) > 250

    def came_by(course: Course, moment: datetime) -> bool:
        assert course.started_at is not None
        return course.started_at <= moment

    by_p50 = sum(came_by(course, course.predicted.p50) for course in predicted if course.predicted) / len(predicted)
    by_p90 = sum(came_by(course, course.predicted.p90) for course in predicted if course.predicted) / len(predicted)
    assert 0.42 < by_p50 < 0.58
    assert 0.85 < by_p90 < 0.95
    calibration = predictor.calibration()
    assert calibration is not None
    assert calibration.starts == min(1000, len(predicted))
    assert 0.85 < calibration.by_p90 < 0.95
