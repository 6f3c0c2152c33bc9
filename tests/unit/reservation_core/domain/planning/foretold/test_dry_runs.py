"""A dry run says of a job what the planner does with it once it is submitted, in simulated worlds."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.jobs.smaller_requests import lengths_up_to
from reservation_core.domain.plan import Commitment, Waiting
from reservation_core.domain.planning.dry_runs import DryRun, PlanTooShortError, PlanView, hold_back_all
from reservation_core.domain.planning.predictions.start_predictor import StartPredictor
from reservation_core.domain.planning.predictions.wait_calibration import ENOUGH, LearntWaits
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.domain.policy.limits import NO_POLICY
from reservation_core.domain.request_terms import RequestChange
from tests.examples import examples
from tests.unit.reservation_core.domain.jobs.test_promises import CHANCES, OPERATIONS, nodes_by, policy_by
from tests.unit.reservation_core.domain.planning.planned_world import MANY, NAMES
from tests.unit.reservation_core.domain.planning.simulation import Simulation
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, TYPES, held, job, node, snapshot

FAR = datetime.max.replace(tzinfo=UTC)
STEPS = st.integers(5, 40)
often = examples(100, suppress_health_check=list(HealthCheck))


def played(steps: int, chance: Random) -> Simulation:
    """A world in which things have happened, with quotas or without; the planner has done all that it wants to."""
    policy = chance.choice((NO_POLICY, policy_by(chance)))
    simulation = Simulation(nodes_by(chance), MANY, chance, policy)
    for _ in range(steps):
        simulation.do(chance.choice(OPERATIONS))
        simulation.plan()
    return simulation


def seen(simulation: Simulation, *, slotted: bool = True) -> PlanView:
    """The true state, as a ledger has it; of jobs with a slot perhaps nothing but their slots."""
    rows = [row for within in (None, *simulation.booked) for row in simulation.rows(within=within)]
    apart = [job for job in simulation.waiting.values() if job.booking_id is None and job.id in simulation.slots]
    waiting = [job for job in simulation.waiting.values() if slotted or job not in apart]
    holdings = [*simulation.holdings()]
    return PlanView(
        snapshot(simulation.nodes, rows, waiting),
        simulation.policy,
        NAMES,
        holdings,
        simulation.shares,
        MANY,
        simulation.placement,
        others=lambda: [] if slotted else apart,
        estimates=MANY,
    )


def practised(seed: int) -> StartPredictor:
    """A predictor that has seen jobs run, and wait, for longer or shorter than they asked for."""
    chance = Random(seed)
    predictor = StartPredictor()
    for _ in range(30):
        asked = chance.randint(1, 15) * MINUTE
        ran = asked * chance.random()
        owner, gpus = chance.choice(list(NAMES)), chance.choice((1, 2, 4))
        predictor.learn([RunTime(owner, gpus, 1, "h100", asked.total_seconds(), ran.total_seconds(), T0)])
    ratios = tuple(chance.gauss(0, 1) for _ in range(ENOUGH))
    predictor.calibrate(LearntWaits((0.5, 0.9), (ratios, ratios, ratios)))
    return predictor


def comes_true(simulation: Simulation, wanted: Waiting) -> datetime | None:
    """When a job starts or is promised to start that is submitted now."""
    simulation.arrive(wanted)
    simulation.plan()
    return simulation.started.get(wanted.id, simulation.promises.get(wanted.id))


def asked(simulation: Simulation) -> Waiting:
    """A job of the queue, or within a booking."""
    if simulation.booked and simulation.chance.random() < 0.2:
        return simulation.drawn_within(simulation.chance.choice(list(simulation.booked)))
    return replace(simulation.drawn(), avoid_nodes=frozenset())


@often
@given(STEPS, st.integers(0, 8), CHANCES)
def test_a_job_gets_what_its_dry_run_says(steps: int, unseen: int, chance: Random) -> None:
    """Also where the planner has not yet seen what came last."""
    simulation = played(steps, chance)
    for _ in range(unseen):
        simulation.do(chance.choice(("arrive", "arrive", "arrive", "cancel", "finish", "shares", "book", "unbook")))
    wanted = asked(simulation)
    said = DryRun(seen(simulation), wanted, simulation.now).start
    refused = simulation.refused
    came = comes_true(simulation, wanted)
    assert simulation.refused > refused or came == said


@often
@given(STEPS, CHANCES)
def test_so_it_does_where_only_the_slots_of_the_others_are_known(steps: int, chance: Random) -> None:
    simulation = played(steps, chance)
    wanted = asked(simulation)
    said = DryRun(seen(simulation, slotted=False), wanted, simulation.now).start
    refused = simulation.refused
    came = comes_true(simulation, wanted)
    assert simulation.refused > refused or came == said


@often
@given(STEPS, st.integers(0, 25), st.booleans(), st.integers(0, 2**32), CHANCES)
def test_its_start_is_predicted_as_the_planner_predicts_it(
    steps: int,
    more: int,
    slotted: bool,
    seed: int,
    chance: Random,
) -> None:
    """Whether the other jobs with a slot are looked at or not; never later than the promise.

    The planner knows that a quota holds a job back once there was room for it.
    """
    simulation = played(steps, chance)
    for _ in range(more):
        simulation.do("arrive")
    simulation.plan()
    wanted = replace(asked(simulation), avoid_nodes=frozenset())
    run = DryRun(seen(simulation, slotted=slotted), wanted, simulation.now)
    said = run.predict(practised(seed))
    refused = simulation.refused
    comes_true(simulation, wanted)
    common = simulation.planner.common
    hold_back_all(common)
    came = practised(seed).predict_starts(common, common.queue.jobs.values(), simulation.now).get(wanted.id)
    assert simulation.refused > refused or came == said
    if said is not None and run.promised_at is not None:
        assert simulation.now <= said.p50 <= said.p90 <= run.promised_at


def test_no_start_is_predicted_where_the_planner_predicts_none() -> None:
    nodes, rows = (node("n", 1, first_id=1),), (held("r", 1, 0, 60),)
    for estimates in (0, 1):
        view = PlanView(snapshot(nodes, rows, ()), NO_POLICY, {}, (), {}, MANY, estimates=estimates)
        assert (DryRun(view, job(1), T0).predict(practised(0)) is None) is (estimates == 0)


@often
@given(STEPS, st.integers(0, 2**32))
def test_what_would_start_sooner_does(steps: int, seed: int) -> None:
    simulation = played(steps, Random(seed))
    wanted = asked(simulation)
    run = DryRun(seen(simulation), wanted, simulation.now)
    types = [gpu_type for gpu_type in TYPES if wanted.gpu_type not in (None, gpu_type)]
    found = run.sooner(wanted.length, types)
    shorter = [nearest.duration for nearest in found if nearest.change is RequestChange.SHORTER]
    for length in lengths_up_to(wanted.length):
        start = run.start_of(replace(wanted, length=length))
        assert (length <= max(shorter, default=timedelta(0))) is (
            start is not None and start + MINUTE <= (run.start or FAR)
        )
    for nearest in found:
        assert run.start is None or nearest.promised_at < run.start
        other = replace(
            wanted, gpus=nearest.size.gpus, nodes=nearest.size.nodes, gpu_type=nearest.gpu_type, length=nearest.duration
        )
        world = played(steps, Random(seed))
        came = comes_true(world, other)
        assert came == nearest.promised_at or world.refused > simulation.refused


def nearest_to(
    wanted: Waiting, beside: int, *rows: Commitment
) -> dict[RequestChange, tuple[int, str | None, timedelta]]:
    """What would start sooner, on four h100 on one node and two a100 on another; `beside` in minutes."""
    nodes = (node("n", 4, first_id=1), node("m", 2, "a100", first_id=11))
    view = PlanView(snapshot(nodes, rows, ()), NO_POLICY, {}, (), {}, MANY)
    found = DryRun(view, wanted, T0).sooner(wanted.length - beside * MINUTE, ["a100"])
    return {nearest.change: (nearest.size.gpus, nearest.gpu_type, nearest.duration) for nearest in found}


def test_the_nearest_change_of_each_kind_is_found() -> None:
    """Three cards are taken for an hour, and the fourth is booked in half an hour."""
    rows = [held(f"r{gpu}", gpu, 0, 60) for gpu in (1, 2, 3)] + [held("b", 4, 30, 240, is_held=False)]
    wanted = job(1, 1, minutes=62)
    assert nearest_to(wanted, 2, *rows) == {
        RequestChange.SHORTER: (1, "h100", timedelta(minutes=25)),
        RequestChange.TYPE: (1, "a100", timedelta(minutes=60)),
    }
    assert nearest_to(job(1, 4, minutes=62), 2, *rows) == {RequestChange.FEWER: (3, "h100", timedelta(minutes=60))}
    assert nearest_to(job(1, 9, minutes=62), 2, *rows) == {RequestChange.FEWER: (4, "h100", timedelta(minutes=60))}
    assert nearest_to(job(1, 2, minutes=10), 2) == {}


def test_sooner_by_less_than_a_minute_is_no_advice() -> None:
    """Two GPUs are given back half a minute, or a whole one, before the other two."""
    for later, advice in ((0.5, {}), (1, {RequestChange.FEWER: (2, "h100", 60 * MINUTE)})):
        rows = [held(f"r{gpu}", gpu, 0, 60) for gpu in (1, 2)]
        rows += [held(f"r{gpu}", gpu, 0, 60 + later) for gpu in (3, 4)]
        rows += [held(f"a{gpu}", gpu, 0, 600) for gpu in (11, 12)]
        assert nearest_to(job(1, 4, minutes=62), 2, *rows) == advice


def test_with_a_slack_the_promise_is_later_than_the_slot() -> None:
    nodes, rows = (node("n", 1, first_id=1),), (held("r", 1, 0, 60),)
    slack = 30 * MINUTE
    run = DryRun(PlanView(snapshot(nodes, rows, ()), NO_POLICY, {}, (), {}, MANY, slack=slack), job(1), T0)
    assert (run.start, run.promised_at) == (T0 + 60 * MINUTE, T0 + 90 * MINUTE)
    view = PlanView(snapshot(nodes, (), ()), NO_POLICY, {}, (), {}, MANY, slack=slack)
    assert DryRun(view, job(1), T0).promised_at == T0


def near(view: PlanView, bookings: int) -> PlanView:
    """The view with the rows of jobs, and so many of bookings, those that begin first."""
    rows = view.snapshot.commitments
    booked = sorted((row for row in rows if not (row.held or row.planned or row.booking_id)), key=lambda row: row.start)
    if len(booked) <= bookings:
        return view
    kept = [row for row in rows if row not in booked] + booked[: bookings + 1]
    return replace(view, snapshot=replace(view.snapshot, commitments=tuple(kept)), until=booked[bookings].start)


def booked_up(chance: Random) -> PlanView:
    """Nodes on which bookings follow each other for a day, with gaps, and nobody waits."""
    nodes = nodes_by(chance)
    rows = []
    for gpu in [gpu for of in nodes for gpu in of.gpus]:
        end = T0 + chance.randint(0, 60) * MINUTE
        for number in range(chance.randint(0, 12)):
            start = end + chance.randint(0, 40) * MINUTE
            end = start + chance.randint(10, 200) * MINUTE
            rows.append(Commitment(f"bkg-{gpu.id}-{number}", gpu.id, start, end, held=False))
    return PlanView(snapshot(nodes, rows, []), NO_POLICY, {}, (), {}, MANY)


def test_the_near_part_of_the_calendar_says_the_same_or_that_it_is_too_short() -> None:
    told = 0
    for seed in range(300):
        chance = Random(seed)
        whole = booked_up(chance)
        part = near(whole, len(whole.snapshot.commitments) * 9 // 10)
        wanted = job(
            1, chance.choice((1, 1, 2, 4)), minutes=chance.randint(5, 120), gpu_type=chance.choice((None, *TYPES))
        )
        run = DryRun(whole, wanted, T0)
        try:
            short = DryRun(part, wanted, T0)
        except PlanTooShortError:
            continue
        told += part.until is not None and short.start != T0
        assert (short.start, short.promised_at) == (run.start, run.promised_at), seed
        assert short.sooner(wanted.length, TYPES) == run.sooner(wanted.length, TYPES), seed
    assert told > 30, "there was something to be wrong about"


def test_a_calendar_that_is_too_short_is_not_taken_for_a_free_one() -> None:
    rows = [Commitment("bkg-1", gpu, T0 + 10 * MINUTE, T0 + 90 * MINUTE, held=False) for gpu in (1, 2)]
    whole = PlanView(snapshot([node("n1", 2)], rows, []), NO_POLICY, {}, (), {}, MANY)
    short = replace(whole, snapshot=replace(whole.snapshot, commitments=()), until=T0 + 10 * MINUTE)
    assert DryRun(short, job(1, 2, minutes=10), T0).start == DryRun(whole, job(1, 2, minutes=10), T0).start == T0
    with pytest.raises(PlanTooShortError):
        DryRun(short, job(1, 2, minutes=11), T0)
    assert DryRun(whole, job(1, 2, minutes=11), T0).start == T0 + 90 * MINUTE
