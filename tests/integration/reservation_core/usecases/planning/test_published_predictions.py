"""Predicted starts on a real database: shown while a job waits, written when they have moved, the first one kept."""

from datetime import datetime, timedelta

from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.model import PodPhase, Reason
from reservation_core.domain.plan import WaitEstimate
from reservation_core.domain.planning.predictions.start_predictor import StartPredictor
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.jobs.reservations import PredictedStart
from reservation_core.ports.planning.measurements import JudgedPredictions
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.planning.planner import Planner
from reservation_core.usecases.planning.start_predictions import StartPredictions
from tests.clocks import START
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.jobs.test_dependencies import dependent, end, settle_all
from tests.integration.reservation_core.usecases.planning.histories.random_histories import set_the_ledgers_clock
from tests.integration.reservation_core.usecases.planning.test_slots import plan
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LONGEST, World, pod

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)

Times = tuple[datetime | None, datetime | None]


async def publish(world: World, *ids: str, p50: datetime | None, p90: datetime | None, place: int = 1) -> None:
    """What the planner of the newest epoch publishes, if it predicts these times."""
    reason = Reason(ReasonCode.WAITING_FOR_GPUS, "It waits.")
    estimates = [WaitEstimate(job_id, place, reason, START + 9 * HOUR, p50, p90) for job_id in ids]
    [lease] = await world.sql("SELECT epoch FROM planner_lease")
    async with world.uow() as uow:
        await uow.planning.publish_estimates(lease.epoch, estimates, world.clock.now())


async def waiting(world: World) -> tuple[Planner, str]:
    """A planner, and a job that waits for GPUs that another has; it has no slot yet."""
    await world.ran(gpus=2, nodes=2)
    job_id = await world.submitted(gpus=2, nodes=2)
    planner = await world.planner()
    await planner.cycle()
    return planner, job_id


async def first(world: World, job_id: str) -> Times | None:
    rows = await world.sql("SELECT first_p50, first_p90 FROM start_promises WHERE reservation_id = :id", id=job_id)
    found: list[Times] = [(row.first_p50, row.first_p90) for row in rows]
    return found[0] if found else None


async def written(world: World, job_id: str) -> tuple[datetime | None, datetime]:
    """The written p50, and since when pages have known of it."""
    [row] = await world.sql(
        "SELECT estimated_start_p50, planned_at FROM wait_estimates WHERE reservation_id = :id", id=job_id
    )
    return row.estimated_start_p50, row.planned_at


async def test_a_prediction_is_shown_while_the_job_waits(world: World) -> None:
    _, job_id = await waiting(world)
    await publish(world, job_id, p50=START + 2 * HOUR, p90=START + 3 * HOUR)
    shown = PredictedStart(START + 2 * HOUR, START + 3 * HOUR)
    async with world.uow() as uow:
        [in_queue] = await uow.reservations.waiting_views(None, limit=10, after=None)
    assert [(await world.view(job_id)).predicted_start, in_queue.predicted_start] == [shown, shown]
    await publish(world, job_id, p50=None, p90=None)
    assert (await world.view(job_id)).predicted_start is None
    await publish(world, job_id, p50=START + 2 * HOUR, p90=START + 3 * HOUR)
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    assert (await world.view(job_id)).predicted_start is None
    assert (await world.sql("SELECT 1 FROM wait_estimates")).all() == []


async def test_a_start_ends_the_prediction(world: World) -> None:
    planner = await world.planner()
    job_id = await world.submitted()
    await publish(world, job_id, p50=START + 2 * HOUR, p90=START + 3 * HOUR)
    await planner.cycle()
    assert (await world.view(job_id)).predicted_start is None
    assert (await world.sql("SELECT 1 FROM wait_estimates")).all() == []


async def test_a_slot_that_became_earlier_bounds_the_prediction(world: World) -> None:
    planner, job_id = await waiting(world)
    await publish(world, job_id, p50=START + MINUTE, p90=START + 8 * HOUR)
    while await planner.give_slots():
        pass
    view = await world.view(job_id)
    assert view.estimated_start_at is not None
    assert view.estimated_start_at < START + 8 * HOUR
    assert view.predicted_start == PredictedStart(START + MINUTE, view.estimated_start_at)


async def test_small_moves_are_not_written(world: World) -> None:
    """Otherwise each of hundreds of rows would be written every second, for nobody."""
    _, job_id = await waiting(world)
    now, p50, p90 = START, START + 5 * HOUR, START + 8 * HOUR
    await publish(world, job_id, p50=p50, p90=p90)
    assert await written(world, job_id) == (p50, now)
    world.clock.go_on(SECOND)
    await publish(world, job_id, p50=p50 + 5 * MINUTE, p90=p90 - 9 * MINUTE)
    assert await written(world, job_id) == (p50, now)
    # Six minutes are a fiftieth of five hours: the row is written, and pages are not woken yet.
    for moved in (p50 + 7 * MINUTE, p50 + 14 * MINUTE):
        await publish(world, job_id, p50=moved, p90=p90)
        assert await written(world, job_id) == (moved, now)
    await publish(world, job_id, p50=moved, p90=p90 + 11 * MINUTE)
    assert (await world.view(job_id)).predicted_start == PredictedStart(moved, p90 + 11 * MINUTE)
    # A start that is near moves by half a minute at least.
    await publish(world, job_id, p50=START + 3 * MINUTE, p90=p90)
    await publish(world, job_id, p50=START + 3 * MINUTE + 30 * SECOND, p90=p90)
    assert await written(world, job_id) == (START + 3 * MINUTE, now)
    await publish(world, job_id, p50=START + 3 * MINUTE + 31 * SECOND, p90=p90)
    assert await written(world, job_id) == (START + 3 * MINUTE + 31 * SECOND, now)
    # Whatever else changes is written as it is, with the present prediction.
    await publish(world, job_id, p50=START + 3 * MINUTE + 32 * SECOND, p90=p90, place=2)
    assert await written(world, job_id) == (START + 3 * MINUTE + 32 * SECOND, world.clock.now())
    await publish(world, job_id, p50=None, p90=None, place=2)
    assert await written(world, job_id) == (None, world.clock.now())


async def test_pages_are_woken_for_moves_alone_twice_a_minute_at_most(world: World) -> None:
    _, job_id = await waiting(world)
    woken = START
    for wait in (0, 29, 1, 29, 2):
        world.clock.go_on(wait * SECOND)
        now = world.clock.now()
        woken = now if now - woken >= 30 * SECOND else woken
        await publish(world, job_id, p50=now + HOUR, p90=now + 2 * HOUR)
        await publish(world, job_id, p50=now + 3 * HOUR, p90=now + 4 * HOUR)
        assert await written(world, job_id) == (now + 3 * HOUR, woken)


async def test_the_prediction_at_the_promise_is_kept(world: World) -> None:
    planner, job_id = await waiting(world)
    await publish(world, job_id, p50=START + 2 * HOUR, p90=START + 3 * HOUR)
    while await planner.give_slots():
        pass
    await publish(world, job_id, p50=START + 6 * HOUR, p90=START + 7 * HOUR)
    assert await first(world, job_id) == (START + 2 * HOUR, START + 3 * HOUR)


async def test_the_first_prediction_after_the_promise_is_kept(world: World) -> None:
    """Also of a job that is told nothing for a while, when others go before it, and then something else."""
    planner, job_id = await waiting(world)
    await plan(world, planner)
    assert await first(world, job_id) == (None, None)
    await publish(world, job_id, p50=START + HOUR, p90=START + 2 * HOUR)
    await publish(world, p50=None, p90=None)
    await publish(world, job_id, p50=START + 6 * HOUR, p90=START + 7 * HOUR)
    assert await first(world, job_id) == (START + HOUR, START + 2 * HOUR)


async def test_another_request_gets_another_first_prediction(world: World) -> None:
    planner, job_id = await waiting(world)
    await plan(world, planner)
    await publish(world, job_id, p50=START + HOUR, p90=START + 2 * HOUR)
    async with world.uow() as uow:
        await extend(uow, world.who, job_id, HOUR, None, LONGEST, world.clock.now())
    assert await first(world, job_id) is None
    assert (await world.view(job_id)).predicted_start is None


async def started_after(world: World, wait: timedelta) -> None:
    """A job whose start was predicted for an hour (p50) and two hours (p90) later, and that started after `wait`."""
    holds = await world.ran(gpus=2, nodes=2)
    begun = world.clock.now()
    job_id = await world.submitted(gpus=2, nodes=2)
    await plan(world)
    await publish(world, job_id, p50=begun + HOUR, p90=begun + 2 * HOUR)
    world.clock.go_on(wait)
    for ended in (holds, job_id):
        async with world.uow() as uow:
            await cancel(uow, world.who, ended, None, world.clock.now())
        await world.operate()
        await world.see(*(world.cluster.show(pod(ended, rank), PodPhase.GONE) for rank in range(2)))
        await plan(world)
        await world.operate()


async def test_predictions_are_judged_when_jobs_start(world: World) -> None:
    """A start up to two seconds late is in time, as it is for promises."""
    waits = (HOUR, HOUR + 2 * SECOND, HOUR + 3 * SECOND, 2 * HOUR + 2 * SECOND, 2 * HOUR + 3 * SECOND)
    for wait in waits:
        await started_after(world, wait)
    async with world.uow() as uow:
        newest = await uow.events.newest()
        assert await uow.measurements.judged_predictions(0, newest) == JudgedPredictions(len(waits), 2, 4)
        assert await uow.measurements.judged_predictions(newest, newest) == JudgedPredictions(0, 0, 0)


async def test_a_start_after_a_failed_one_is_not_judged(world: World) -> None:
    await started_after(world, HOUR)
    async with world.uow() as uow:
        await sql(
            uow,
            "INSERT INTO events (reservation_id, at, actor, kind) "
            "SELECT reservation_id, at + interval '3 hours', actor, kind FROM events WHERE kind = 'allocated'",
        )
        assert await uow.measurements.judged_predictions(0, await uow.events.newest()) == JudgedPredictions(1, 1, 1)


async def test_a_job_that_waits_for_another_shows_when_it_is_likely_to_start(world: World) -> None:
    """Until it is promised nothing any more; its prediction is no part of what predictions are judged by."""
    await set_the_ledgers_clock(world)
    predictor = StartPredictor(ALLOWANCE)
    predictor.learn([RunTime(9, 1, 1, "any", 3600, 600, START) for _ in range(10)])
    running = await world.ran()
    job_id = await dependent(world, {running: DependencyWhen.SUCCEEDED})
    last = await dependent(world, {job_id: DependencyWhen.SUCCEEDED})
    planner = await world.planner()
    planner.predictions = StartPredictions(world.uow, predictor, lambda _: None)
    await plan(world, planner)
    view = await world.view(job_id)
    assert view.queue_position is None
    assert view.predicted_start is not None
    assert view.predicted_start.p50 == view.predicted_start.p90 < view.estimated_start_at
    assert view.reservation.reason.code is ReasonCode.WAITING_FOR_JOBS
    async with world.uow() as uow:
        in_queue = {one.reservation.id: one for one in await uow.reservations.waiting_views(None, limit=10, after=None)}
    assert in_queue[job_id].predicted_start == view.predicted_start
    assert in_queue[last].predicted_start is not None
    assert in_queue[last].predicted_start.p50 > view.predicted_start.p50
    assert await first(world, job_id) == (None, None)
    await world.sql("DELETE FROM allocations WHERE planned")
    assert (await world.view(job_id)).predicted_start is None


async def test_a_released_job_has_its_place_and_the_prediction_of_the_queue(world: World) -> None:
    await set_the_ledgers_clock(world)
    predictor = StartPredictor(ALLOWANCE)
    predictor.learn([RunTime(9, 1, 1, "any", 3600, 600, START) for _ in range(10)])
    running = await world.ran()
    rest = await world.ran(gpus=1), await world.ran(gpus=2)
    job_id = await dependent(
        world, {running: DependencyWhen.STARTED, rest[0]: DependencyWhen.SUCCEEDED}, gpus=2, nodes=2
    )
    planner = await world.planner()
    planner.predictions = StartPredictions(world.uow, predictor, lambda _: None)
    await plan(world, planner)
    assert (await world.view(job_id)).predicted_start is not None
    await end(world, rest[0])
    await settle_all(world)
    world.clock.go_on(MINUTE)
    await plan(world, planner)
    view = await world.view(job_id)
    assert (view.queue_position, view.predicted_start) == (1, None)  # too little is known of waits
