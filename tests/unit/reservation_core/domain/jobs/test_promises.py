"""The promise, in simulated worlds: whatever comes in later, nobody starts after what they were promised."""

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, PlanningSnapshot
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.standings import BY_AREA
from reservation_core.domain.policy.limits import UNLIMITED, Policy, PolicyRule, Relaxation, Rules
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.request_terms import Share
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.planned_world import MANY
from tests.unit.reservation_core.domain.planning.simulation import Simulation
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, TYPES, at, job, node

OPERATIONS = (
    *("arrive",) * 8,
    *("cancel", "book", "book", "within", "unbook", "extend", "extend", "shares"),
    *("finish",) * 3,
    *("pass_time",) * 5,
)
IN_BOOKINGS = (*OPERATIONS, *("within",) * 12)
SCOPES = (
    Scope(user="ann"),
    Scope(user="bob"),
    Scope(project="lab"),
    Scope(gpu_type="h100"),
    Scope(user="ann", gpu_type="h100"),
    Scope(project="lab", gpu_type="a100"),
)
SOON = (Relaxation(5 * MINUTE, frozenset({RuleName.MAX_GPUS, RuleName.MAX_GPU_HOURS_PER_WEEK})),)
LATE = st.sampled_from((timedelta(0), timedelta(seconds=5)))
LIMITS = st.sampled_from((MANY, 1, 3))
STEPS = st.integers(20, 80)
# Many things have to come together: what is drawn one by one is mostly little, and so is what comes of it.
CHANCES = st.integers(0, 2**32).map(Random)
often = ledger_examples(200, suppress_health_check=list(HealthCheck))


def nodes_by(chance: Random) -> tuple[Node, ...]:
    """A few nodes of a few cards, of one type or two."""
    types = chance.choice((TYPES, TYPES[:1]))
    return tuple(
        node(f"n{number}", chance.randint(1, 4), chance.choice(types), first_id=10 * number)
        for number in range(chance.randint(1, 4))
    )


def policy_by(chance: Random) -> Policy:
    """A rule for everybody, and up to three that say something else for some."""
    rules = [
        PolicyRule(
            scope,
            Rules(
                max_gpus=chance.choice((None, 1, 2, 3, 4, 6, UNLIMITED)),
                max_gpu_hours_per_week=chance.choice((None, None, 0.5, 1.0, 1.3, 3.0, UNLIMITED)),
                relaxed_if_starts_within=chance.choice((None, SOON)),
            ),
        )
        for scope in (Scope(), *chance.sample(SCOPES, chance.randint(0, 3)))
    ]
    return Policy(rules)


def play(simulation: Simulation, steps: int) -> None:
    """So many steps, and then until nobody waits who could ever start."""
    for _ in range(steps):
        simulation.do(simulation.chance.choice(OPERATIONS))
        simulation.plan()
    ever = {waiting_job.id for waiting_job in simulation.waiting.values() if simulation.could_ever(waiting_job)}
    # A job that can be placed at all has a promised start at once, and starts when nothing new comes any more.
    assert ever == {slot.id for slot in simulation.slots.values() if slot.booking_id is None}
    ever |= simulation.slots.keys()
    for _ in range(600):
        if not ever & simulation.waiting.keys():
            break
        simulation.pass_on()
    assert ever <= simulation.started.keys()
    assert all(simulation.started[job_id] <= simulation.promises[job_id] + simulation.late for job_id in ever)


@often
@given(STEPS, LIMITS, CHANCES)
def test_no_later_submission_makes_a_job_start_after_its_promise(steps: int, limit: int, chance: Random) -> None:
    play(Simulation(nodes_by(chance), limit, chance), steps)


@often
@given(STEPS, LIMITS, LATE, CHANCES)
def test_nor_does_any_quota_of_its_owner_or_project(steps: int, limit: int, late: timedelta, chance: Random) -> None:
    play(Simulation(nodes_by(chance), limit, chance, policy_by(chance), late=late), steps)


@ledger_examples(100, suppress_health_check=list(HealthCheck))
@given(st.integers(5, 40), CHANCES)
def test_each_slot_is_the_earliest_that_cards_and_quotas_allow(steps: int, chance: Random) -> None:
    simulation = Simulation(nodes_by(chance), MANY, chance, policy_by(chance), oracle=True)
    for _ in range(steps):
        simulation.do(chance.choice(OPERATIONS))
        simulation.plan()


@often
@given(STEPS, LIMITS, LATE, CHANCES)
def test_all_that_wait_in_a_booking_have_slots_while_it_has_places(
    steps: int, limit: int, late: timedelta, chance: Random
) -> None:
    simulation = Simulation(nodes_by(chance), limit, chance, late=late)
    for _ in range(steps):
        simulation.do(chance.choice(IN_BOOKINGS))
        simulation.plan()
        assert simulation.left_out() == []


def test_a_job_for_which_a_booking_has_no_place_stands_in_nobodys_way() -> None:
    booking = [Commitment("bkg-1", gpu, at(0), at(60), held=False) for gpu in range(2)]
    runs = Commitment("job-r", 0, at(0), at(60), held=True, booking_id="bkg-1")
    large, small = (replace(job(seq, gpus, minutes=90), booking_id="bkg-1") for seq, gpus in ((1, 2), (2, 1)))
    rows = (*booking, runs)
    picture = CalendarPicture(PlanningSnapshot((node("n0", 2),), rows, (large,), frozenset({"h100"})))
    assert picture.plan_starts(T0, MANY) == []
    assert picture.plan_slots(T0, MANY, MANY).slots == []
    picture.set_reservation(small.id, small, ())
    [start] = picture.plan_starts(T0, MANY)
    assert (start.id, start.start, start.end) == (small.id, T0, at(60))


def test_bookings_take_turns_where_there_is_no_time_for_all() -> None:
    names = ("bkg-1", "bkg-2")
    rows = [Commitment(name, gpu, at(0), at(60), held=False) for gpu, name in enumerate(names)]
    rows += [Commitment(f"job-r{gpu}", gpu, at(0), at(5), held=True, booking_id=name) for gpu, name in enumerate(names)]
    waiting = tuple(replace(job(seq, minutes=5), booking_id=names[seq // 4]) for seq in range(1, 7))
    picture = CalendarPicture(PlanningSnapshot((node("n0", 2),), tuple(rows), waiting, frozenset({"h100"})))
    given = []
    for _ in range(5):
        picture.plan_starts(T0, MANY)
        given += [slot.booking_id for slot in picture.plan_slots(T0, MANY, MANY, lambda: True).slots]
    assert given[:4] in (["bkg-1", "bkg-2"] * 2, ["bkg-2", "bkg-1"] * 2)


def test_the_next_of_a_booking_get_their_slots_in_the_next_part() -> None:
    cards = node("n0", 1)
    booking = Commitment("bkg-1", 0, at(0), at(60), held=False)
    runs = Commitment("job-r", 0, at(0), at(5), held=True, booking_id="bkg-1")
    waiting = tuple(replace(job(seq, minutes=5), booking_id="bkg-1") for seq in range(1, 6))
    picture = CalendarPicture(PlanningSnapshot((cards,), (booking, runs), waiting, frozenset({"h100"})))
    parts = []
    more = True
    while more:
        assert picture.plan_starts(T0, MANY) == []
        plan = picture.plan_slots(T0, MANY, 2)
        parts += [[slot.id for slot in plan.slots]] if plan.slots else []
        more = plan.more
    assert parts == [["job-1", "job-2"], ["job-3", "job-4"], ["job-5"]]


def test_what_is_told_of_a_slot_that_was_moved_twice_is_where_it_is() -> None:
    """One that moved, and moved again as another came between, stands with all others where it was told."""
    runs = [Commitment("job-1", gpu, T0, at(8), held=True) for gpu in (0, 1, 2)]
    slots = [Commitment("job-3", 0, at(8), at(34), held=False, planned=True)]
    slots += [Commitment("job-4", gpu, at(9), at(16), held=False, planned=True) for gpu in (1, 2, 3)]
    slots += [Commitment("job-5", gpu, at(16), at(19), held=False, planned=True) for gpu in (1, 3)]
    asked = (job(3, 1, minutes=26), job(4, 3, minutes=7), job(5, 2, minutes=3))
    waiting = tuple(replace(one, submitted_at=to_micros(T0)) for one in asked)
    picture = CalendarPicture(PlanningSnapshot((node("n0", 4),), (*runs, *slots), waiting, frozenset({"h100", None})))
    picture.common.set_orders(BY_AREA)
    assert picture.plan_starts(T0, MANY) == []
    told = picture.plan_slots(T0, MANY, MANY).slots
    assert [slot.id for slot in told] == ["job-3", "job-4", "job-5"]
    for slot in told:
        assert {gpu.gpu_id for gpu in slot.gpus} == {gpu for gpu, _ in picture.common.ledger.by_reservation[slot.id]}


def test_what_a_former_slot_gives_back_is_for_those_without_one() -> None:
    small = replace(node("n0", 1), cpu_milli=2000)
    booked = Commitment("bkg-1", 0, T0, at(60), held=False)
    former = Commitment("job-5", 0, at(10), at(60), held=False, planned=True, booking_id="bkg-1")
    greedy = replace(job(5, minutes=100), booking_id="bkg-1", share=Share(6000))
    first, second = (replace(job(seq, minutes=20), booking_id="bkg-1") for seq in (1, 2))
    snapshot = PlanningSnapshot((small,), (booked, former), (greedy, first, second), frozenset({"h100", None}))
    picture = CalendarPicture(snapshot)
    assert picture.plan_starts(T0, MANY) == []
    assert picture.plan_slots(T0, MANY, 1).more
    for gone in (greedy, second):
        picture.set_reservation(gone.id, None, ())
    started = [
        start.id
        for _ in range(4)
        for start in (*picture.plan_starts(T0, MANY), *picture.plan_slots(T0, MANY, MANY).slots)
    ]
    assert started == ["job-1"]


@pytest.mark.parametrize(("has_large_node", "because"), [(True, "before the booking ends"), (False, "on each node")])
def test_a_former_slot_that_is_given_up_says_whether_nodes_or_time_are_missing(
    has_large_node: bool, because: str
) -> None:
    nodes = (replace(node("n0", 1), cpu_milli=2000), replace(node("n1", 1, first_id=1), cpu_milli=64_000))
    booked = [Commitment("bkg-1", gpu, T0, at(60), held=False) for gpu in (0, 1)]
    runs = Commitment("job-1", 1, T0, at(60), held=True, booking_id="bkg-1")
    former = Commitment("job-5", 0, at(10), at(60), held=False, planned=True, booking_id="bkg-1")
    greedy = replace(job(5, minutes=100), booking_id="bkg-1", share=Share(6000))
    rows = (*booked, runs, former) if has_large_node else (booked[0], former)
    snapshot = PlanningSnapshot(nodes[: 1 + has_large_node], rows, (greedy,), frozenset({"h100", None}))
    picture = CalendarPicture(snapshot)
    assert picture.plan_starts(T0, MANY) == []
    (given_up,) = picture.plan_slots(T0, MANY, MANY).slots
    assert (given_up.id, given_up.gpus) == ("job-5", ())
    assert because in (given_up.because or "")


def test_a_booking_knows_the_pods_that_the_planner_has_just_started_on_its_gpus() -> None:
    booked = Commitment("bkg-1", 0, at(10), at(60), held=False)
    within = replace(job(1, minutes=5), booking_id="bkg-1")
    before = PlanningSnapshot((node("n0", 1),), (booked,), (within,), frozenset({"h100", None}))
    picture = CalendarPicture(before)
    assert picture.plan_starts(T0, MANY) == []
    picture.plan_slots(T0, MANY, MANY)
    picture.set_reservation("job-2", job(2), ())
    assert [start.id for start in picture.plan_starts(T0, MANY)] == ["job-2"]
    assert picture.plan_starts(at(10), MANY) == []  # nobody has said that its pod is over
    picture.set_reservation("job-2", None, ())
    assert [start.id for start in picture.plan_starts(at(10), MANY)] == ["job-1"]


@pytest.mark.parametrize(
    "after",
    [
        Commitment("job-1", 0, T0, at(30), held=True, booking_id="bkg-1"),
        Commitment("job-1", 0, at(30), at(60), held=False, planned=True, booking_id="bkg-1"),
    ],
    ids=["it ends earlier", "it starts later"],
)
def test_time_that_a_job_in_a_booking_gives_back_is_for_those_without_a_place(after: Commitment) -> None:
    booked = Commitment("bkg-1", 0, T0, at(60), held=False)
    before = Commitment("job-1", 0, T0, at(60), held=True, booking_id="bkg-1")
    waits, first = (replace(job(seq, minutes=30), booking_id="bkg-1") for seq in (2, 1))
    snapshot = PlanningSnapshot((node("n0", 1),), (booked, before), (waits,), frozenset({"h100", None}))
    picture = CalendarPicture(snapshot)
    assert picture.plan_starts(T0, MANY) == []
    assert picture.plan_slots(T0, MANY, MANY).slots == []
    picture.set_reservation("job-1", first if after.planned else None, (after,))
    found: set[str] = set()
    for _ in range(4):
        found.update(start.id for start in picture.plan_starts(T0, MANY))
        found.update(slot.id for slot in picture.plan_slots(T0, MANY, MANY).slots)
    assert "job-2" in found
