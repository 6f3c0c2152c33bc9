"""The planner adds predicted starts to what waiting jobs are told, and learns from jobs as they end."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reservation_core.domain.model import PodPhase
from reservation_core.domain.plan import WaitEstimate
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.predictions.wait_calibration import LEVELS, LearntWaits
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.ports.jobs.reservations import PredictedStart
from reservation_core.ports.planning.planning import LostLeadershipError
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.planning.planner import Planner
from reservation_core.usecases.planning.start_predictions import StartPredictions
from tests.integration.reservation_core.usecases.planning.test_slots import plan
from tests.integration.reservation_core.usecases.world import World, pod

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class Minutes:
    """Predicts a minute and two for every job, and notes what it has learnt."""

    def __init__(self) -> None:
        self.learnt: list[list[float]] = []
        self.learnt_waits = LearntWaits(LEVELS, ((), (), ()))
        self.asked = 0

    def calibrate(self, learnt: LearntWaits) -> None:
        self.learnt_waits = learnt

    def learn(self, ended: Sequence[RunTime]) -> None:
        self.learnt.append([run.ran for run in ended])

    def predict(self, picture: CalendarPicture, estimates: Sequence[WaitEstimate], now: datetime) -> list[WaitEstimate]:
        self.asked += 1
        return [replace(estimate, p50=now + MINUTE, p90=now + 2 * MINUTE) for estimate in estimates]


async def predicting(world: World) -> tuple[Planner, Minutes]:
    """A planner that predicts, and its predictor; the planner before has lost the lease."""
    planner, minutes = await world.planner(), Minutes()
    planner.predictions = StartPredictions(world.uow, minutes, lambda _: None)
    return planner, minutes


async def all_gpus(world: World, planner: Planner, length: timedelta | None = None) -> str:
    """A job that has all GPUs, from when they are free; with a `length` it ends by itself after that."""
    job_id = await world.submitted(gpus=2, nodes=2)
    await plan(world, planner)
    await world.operate()
    pods = [pod(job_id, rank) for rank in range(2)]
    await world.see(*(world.cluster.show(name, PodPhase.RUNNING, started_at=world.clock.now()) for name in pods))
    if length is not None:
        world.clock.go_on(length)
        await world.see(*(world.cluster.show(name, PodPhase.FINISHED, exit_code=0) for name in pods))
        await world.operate()
        await world.see(*(world.cluster.show(name, PodPhase.GONE) for name in pods))
    return job_id


async def test_waiting_jobs_get_predictions(world: World) -> None:
    planner, minutes = await predicting(world)
    await all_gpus(world, planner)
    asked = minutes.asked
    job_id = await world.submitted(gpus=2, nodes=2)
    await plan(world, planner)
    now = world.clock.now()
    assert (await world.view(job_id)).predicted_start == PredictedStart(now + MINUTE, now + 2 * MINUTE)
    # Nothing changes but the time: the prediction is made again after a while.
    for wait, times in ((9 * SECOND, 1), (SECOND, 2), (9 * SECOND, 2), (90 * SECOND, 3)):
        world.clock.go_on(wait)
        await planner.publish_estimates()
        assert minutes.asked - asked == times
    now = world.clock.now()
    assert (await world.view(job_id)).predicted_start == PredictedStart(now + MINUTE, now + 2 * MINUTE)


async def test_nothing_is_read_while_no_job_waits(world: World) -> None:
    planner, minutes = await predicting(world)
    await all_gpus(world, planner, MINUTE)
    planner, minutes = await predicting(world)
    for _ in range(3):
        await plan(world, planner)
        world.clock.go_on(MINUTE)
    assert minutes.learnt == []


async def test_jobs_that_end_are_learnt_once(world: World) -> None:
    """At first those that ever ended, then those that ended since."""
    planner, _ = await predicting(world)
    for length in (7 * MINUTE, 5 * MINUTE):
        await all_gpus(world, planner, length)
    planner, minutes = await predicting(world)
    running = await all_gpus(world, planner)
    await world.submitted(gpus=2, nodes=2)
    await plan(world, planner)
    assert minutes.learnt == [[420.0, 300.0]]
    world.clock.go_on(10 * SECOND)
    await planner.publish_estimates()
    assert minutes.learnt == [[420.0, 300.0]]
    async with world.uow() as uow:
        await cancel(uow, world.who, running, None, world.clock.now())
    await world.operate()
    await world.see(*(world.cluster.show(pod(running, rank), PodPhase.GONE) for rank in range(2)))
    await world.submitted()
    world.clock.go_on(10 * SECOND)
    await planner.publish_estimates()
    assert minutes.learnt == [[420.0, 300.0], [10.0]]


class Broken(Minutes):
    """Predicts nothing, but fails, as long as it is `broken`."""

    broken = True

    def predict(self, picture: CalendarPicture, estimates: Sequence[WaitEstimate], now: datetime) -> list[WaitEstimate]:
        if self.broken:
            raise ZeroDivisionError("half a job")
        return super().predict(picture, estimates, now)


async def test_estimates_are_published_when_predicting_fails(world: World) -> None:
    """The failure is told, and the predictor rests for a while; then predictions come again."""
    failures: list[Exception] = []
    broken, planner = Broken(), await world.planner()
    planner.predictions = StartPredictions(world.uow, broken, failures.append)
    await all_gpus(world, planner)
    job_id = await world.submitted(gpus=2, nodes=2)
    await plan(world, planner)
    view = await world.view(job_id)
    assert (view.queue_position, view.predicted_start) == (1, None)
    assert view.estimated_start_at is not None
    assert [str(error) for error in failures] == ["half a job"]
    broken.broken = False
    for wait, is_predicted in ((9 * SECOND, False), (SECOND, True)):
        world.clock.go_on(wait)
        planner.read_anew()
        await plan(world, planner)
        assert ((await world.view(job_id)).predicted_start is not None) is is_predicted
    assert len(failures) == 1


async def test_what_is_learnt_from_waits_is_there_for_the_next_planner(world: World) -> None:
    first, minutes = await predicting(world)
    await all_gpus(world, first)
    await world.submitted(gpus=2, nodes=2)
    await plan(world, first)
    minutes.learnt_waits = LearntWaits((0.25, 1.5), ((0.1, -2.5), (), (1 / 3,)))
    world.clock.go_on(10 * SECOND)
    await first.publish_estimates()
    second, others = await predicting(world)
    await plan(world, second)
    assert others.learnt_waits == minutes.learnt_waits
    # The former planner, which has lost the lease, changes nothing.
    minutes.learnt_waits = LearntWaits(LEVELS, ((), (), ()))
    world.clock.go_on(10 * SECOND)
    with pytest.raises(LostLeadershipError):
        await first.publish_estimates()
    async with world.uow() as uow:
        assert await uow.learnt_waits.read() == others.learnt_waits
