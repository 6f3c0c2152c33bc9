"""A dry run says of a job what the planner does with it, where jobs wait for others."""

from dataclasses import replace
from random import Random

from hypothesis import given

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.plan import Need
from reservation_core.domain.planning.dry_runs import DryRun, PlanView
from reservation_core.domain.planning.standings import BY_AREA
from reservation_core.domain.policy.limits import NO_POLICY
from tests.unit.reservation_core.domain.jobs.test_promises import CHANCES, nodes_by, policy_by
from tests.unit.reservation_core.domain.planning.foretold.chained_simulation import (
    ChainedSimulation,
    seen_with_dependants,
)
from tests.unit.reservation_core.domain.planning.foretold.test_dry_runs import STEPS, comes_true, often
from tests.unit.reservation_core.domain.planning.planned_world import MANY
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, at, held, job, node, snapshot

CHAINS = (*("arrive",) * 5, *("depend",) * 5, *("finish", "pass_time") * 2, "extend", "cancel", "shares")


def played(steps: int, chance: Random) -> ChainedSimulation:
    policy = chance.choice((NO_POLICY, policy_by(chance)))
    simulation = ChainedSimulation(nodes_by(chance), chance, policy)
    for _ in range(steps):
        simulation.do(chance.choice(CHAINS))
        simulation.plan()
    return simulation


@often
@given(STEPS, CHANCES)
def test_a_job_gets_what_its_dry_run_says_beside_jobs_that_wait_for_others(steps: int, chance: Random) -> None:
    simulation = played(steps, chance)
    wanted = simulation.drawn()
    said = DryRun(seen_with_dependants(simulation), wanted, simulation.now).promised_at
    refused = simulation.refused
    came = comes_true(simulation, wanted)
    assert simulation.refused > refused or came == said


@often
@given(STEPS, CHANCES)
def test_so_does_a_job_that_waits_for_others_itself(steps: int, chance: Random) -> None:
    simulation = played(steps, chance)
    wanted = simulation.behind_others()
    if wanted is None:
        return
    said = DryRun(seen_with_dependants(simulation), wanted, simulation.now).promised_at
    refused = simulation.refused
    came = comes_true(simulation, wanted)
    assert simulation.refused > refused or came == said


def test_others_make_no_room_that_jobs_follow() -> None:
    """A short job would start now, if the slot that another follows moved to a later time within its promise."""
    rows = [held("job-90", 1, 0, 30), held("job-91", 2, 0, 30)]
    rows += [replace(held("job-1", gpu, 30, 90, is_held=False), planned=True) for gpu in (1, 2, 3)]
    rows += [replace(held("job-2", gpu, 90, 95, is_held=False), planned=True) for gpu in (1, 2, 3)]
    large = replace(job(1, 3, minutes=60), submitted_at=to_micros(T0), promised_at=to_micros(at(130)))
    behind = replace(job(2, 3, minutes=5), needs=(Need(large.id, by_start=False),), promised_at=to_micros(at(190)))
    short = replace(job(3, 1, minutes=40), submitted_at=to_micros(T0))
    slack = 100 * MINUTE
    world = replace(snapshot([node("n0", 3, first_id=1)], rows, [large]), dependants=(behind,))
    view = PlanView(world, NO_POLICY, {}, (), {}, MANY, slack=slack, orders=BY_AREA)
    assert DryRun(view, short, T0).start == at(95)
    assert DryRun(replace(view, snapshot=replace(world, dependants=())), short, T0).start == T0
