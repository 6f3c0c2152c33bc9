"""The promise, in simulated worlds: whatever comes in later, nobody starts after what they were promised."""

from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reservation_core.domain.limits import NO_POLICY, UNLIMITED, Policy, PolicyRule, Relaxation, RuleName, Rules, Scope
from reservation_core.domain.model import Node
from tests.unit.reservation_core.domain.simulation import MANY, Simulation
from tests.unit.reservation_core.domain.worlds import MINUTE, inventories

OPERATIONS = (
    *("arrive",) * 6,
    *("cancel", "book", "book", "within", "unbook", "extend", "extend", "shares"),
    *("finish",) * 3,
    *("pass_time",) * 6,
)
STEPS = st.lists(st.sampled_from(tuple(product(OPERATIONS, range(12)))), min_size=8, max_size=40)
SCOPES = (
    Scope(),
    Scope(user="ann"),
    Scope(user="bob"),
    Scope(project="lab"),
    Scope(gpu_type="h100"),
    Scope(user="ann", gpu_type="h100"),
    Scope(project="lab", gpu_type="a100"),
)
SOON = (Relaxation(5 * MINUTE, frozenset({RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK})),)
RULES = st.builds(
    Rules,
    max_gpus=st.one_of(st.none(), st.integers(1, 6), st.just(UNLIMITED)),
    max_gpu_hours_per_week=st.one_of(st.none(), st.sampled_from((0.5, 1.0, 1.3, 3.0)), st.just(UNLIMITED)),
    relaxed_if_starts_within=st.sampled_from((None, SOON)),
)
POLICIES = st.dictionaries(st.sampled_from(SCOPES), RULES, min_size=1, max_size=4).map(
    lambda found: Policy(PolicyRule(scope, rules) for scope, rules in found.items())
)


def play(simulation: Simulation, steps: list[tuple[str, int]], data: st.DataObject) -> None:
    """Every step, and then until nobody waits who could ever start."""
    for operation, number in steps:
        simulation.do(operation, number, data)
        simulation.plan()
    ever = {each.id for each in simulation.waiting.values() if simulation.could_ever(each)}
    # Whoever can be placed at all has a promise at once, and starts when nothing new comes any more.
    slots = {each.id for each in simulation.slots.values() if each.booking_id is None}
    assert ever == slots
    ever |= simulation.slots.keys()
    for _ in range(600):
        if not ever & simulation.waiting.keys():
            break
        simulation.pass_on()
    assert ever <= simulation.started.keys()
    assert all(simulation.started[each] <= simulation.promises[each] for each in ever)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(inventories(), STEPS, st.sampled_from((MANY, 1, 3)), st.data())
def test_no_later_submission_makes_a_job_start_after_its_promise(
    nodes: tuple[Node, ...], steps: list[tuple[str, int]], limit: int, data: st.DataObject
) -> None:
    play(Simulation(nodes, limit, NO_POLICY), steps, data)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(inventories(), STEPS, st.sampled_from((MANY, 1, 3)), POLICIES, st.data())
def test_nor_does_any_quota_of_its_owner_or_project(
    nodes: tuple[Node, ...], steps: list[tuple[str, int]], limit: int, policy: Policy, data: st.DataObject
) -> None:
    play(Simulation(nodes, limit, policy), steps, data)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(inventories(), STEPS.filter(lambda steps: len(steps) <= 25), POLICIES, st.data())
def test_each_slot_is_the_earliest_that_cards_and_quotas_allow(
    nodes: tuple[Node, ...], steps: list[tuple[str, int]], policy: Policy, data: st.DataObject
) -> None:
    simulation = Simulation(nodes, MANY, policy, oracle=True)
    for operation, number in steps:
        simulation.do(operation, number, data)
        simulation.plan()
