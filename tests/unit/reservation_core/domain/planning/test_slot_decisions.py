"""Slots against an oracle that tries everything: each in line gets the earliest fit, and is never put off."""

import gc
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.model import GpuCondition
from reservation_core.domain.plan import Commitment, PlannedSlot, Start, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import LAPSED, UNUSABLE, late_starts, plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.planning.wait_estimates import estimate_waits
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.statuses import ReservationKind
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import (
    MINUTE,
    T0,
    World,
    at,
    choices,
    commitments_of,
    earliest_of_any,
    held,
    is_free,
    job,
    node,
    snapshot,
    types_for,
    worlds,
)

thousand = ledger_examples(1000, suppress_health_check=list(HealthCheck))
ALL = 1000


def rows_of(slot: PlannedSlot) -> list[Commitment]:
    return [Commitment(slot.id, gpu.gpu_id, slot.start, slot.end, False, planned=True) for gpu in slot.gpus]


def all_slots(state: Picture, now: datetime = T0) -> list[PlannedSlot]:
    """Every slot there is to write, when nobody can start."""
    slots: list[PlannedSlot] = []
    for _ in range(ALL):
        plan = plan_slots(state, now, ALL, ALL)
        slots += plan.slots
        assert plan_starts(state, now, ALL) == []
        if not plan.more:
            return slots
    raise AssertionError("there is no end to it")


class Played:
    """A world that is planned as the planner does it: starts first, then slots, a few at a time."""

    def __init__(self, world: World, limit: int = ALL) -> None:
        self.world = world
        self.limit = limit
        self.now = T0
        self.state = world.state()
        self.by_id = {waiting_job.id: waiting_job for waiting_job in world.waiting}
        self.cards = {gpu.id: gpu for listed_node in world.nodes for gpu in listed_node.gpus}
        self.rows: dict[str, list[Commitment]] = {}
        for row in world.commitments:
            self.rows.setdefault(row.reservation_id, []).append(row)
        self.slots: dict[str, PlannedSlot] = {}
        self.moves = 0

    def others(self, reservation_id: str) -> list[Commitment]:
        """The calendar without somebody's own rows."""
        taken = [row for owner, its in self.rows.items() if owner != reservation_id for row in its]
        return taken + [row for owner, its in self.slots.items() if owner != reservation_id for row in rows_of(its)]

    def plan(self) -> None:
        """All that there is to decide."""
        for _ in range(ALL):
            for start in plan_starts(self.state, self.now, ALL):
                self.start(start)
            plan = plan_slots(self.state, self.now, ALL, self.limit)
            for slot in plan.slots:
                self.give(slot)
            if not plan.more:
                return
        raise AssertionError("there is no end to it")

    def start(self, start: Start) -> None:
        others = self.others(start.id)
        assert all(is_free(self.cards[gpu.gpu_id], others, start.start, start.end, self.now) for gpu in start.gpus)
        slot = self.slots.pop(start.id, None)
        assert slot is None or start.start <= max(slot.start, self.now)
        self.rows[start.id] = commitments_of(start)

    def give(self, slot: PlannedSlot) -> None:
        before = self.slots.get(slot.id)
        assert before is None or slot.start < before.start
        self.moves += before is not None
        check_slot(self.world, self.others(slot.id), self.by_id[slot.id], slot, self.now)
        self.slots[slot.id] = slot


def check_slot(world: World, rows: list[Commitment], wanted: Waiting, slot: PlannedSlot, now: datetime) -> None:
    assert slot.end == slot.start + wanted.length
    ids = {gpu.gpu_id for gpu in slot.gpus}
    lawful = {
        frozenset(gpu.id for gpu in cards)
        for gpu_type in types_for(world.nodes, wanted)
        for cards in choices(world.nodes, wanted, gpu_type)
    }
    assert frozenset(ids) in lawful
    assert sorted(slot.gpus, key=lambda placed: (placed.rank, placed.index)) == list(slot.gpus)
    assert sorted({gpu.rank for gpu in slot.gpus}) == list(range(wanted.nodes))
    cards = {gpu.id: gpu for listed_node in world.nodes for gpu in listed_node.gpus}
    assert all(is_free(cards[gpu_id], rows, slot.start, slot.end, now) for gpu_id in ids)


@thousand
@given(worlds())
def test_each_gets_the_earliest_fit_that_disturbs_nobody_before_it(world: World) -> None:
    state = world.state()
    starts = plan_starts(state, T0, ALL)
    rows = [*world.commitments, *(row for start in starts for row in commitments_of(start))]
    by_id = {waiting_job.id: waiting_job for waiting_job in world.waiting}
    line = sorted((by_id[job_id] for job_id in state.queue.jobs), key=lambda waiting_job: waiting_job.key)
    slots = plan_slots(state, T0, ALL, ALL).slots
    assert [listed_slot.id for listed_slot in slots] == [
        waiting_job.id for waiting_job in line if earliest_of_any(world.nodes, rows, waiting_job, T0) is not None
    ]
    for slot in slots:
        check_slot(world, rows, by_id[slot.id], slot, T0)
        assert slot.start == earliest_of_any(world.nodes, rows, by_id[slot.id], T0)
        rows += rows_of(slot)
    assert state.queue.slotted == {listed_slot.id for listed_slot in slots}


@thousand
@given(worlds(), st.lists(st.integers(0, 99), min_size=1, max_size=4), st.sampled_from((ALL, 1, 2)))
def test_what_is_given_back_moves_slots_to_the_earliest_and_none_later(
    world: World, leaving: list[int], limit: int
) -> None:
    played = Played(world, limit)
    played.plan()
    for number in leaving:
        if played.rows:
            gone = sorted(played.rows)[number % len(played.rows)]
            del played.rows[gone]
            played.state.set_reservation(gone, None, ())
        played.plan()
    for slot in played.slots.values():
        expected = earliest_of_any(world.nodes, played.others(slot.id), played.by_id[slot.id], T0)
        assert slot.start == expected
        assert slot.start > T0


def state_with_slots(*rows: Commitment, waiting: tuple[Waiting, ...], cards: int = 1) -> Picture:
    return World((node("a", cards),), rows, waiting).state()


def slot(seq: int, gpu_id: int, start: int, end: int) -> Commitment:
    return replace(held(f"job-{seq}", gpu_id, start, end, is_held=False), planned=True)


def test_a_later_job_does_not_start_over_a_slot_and_its_owner_does_when_its_time_has_come() -> None:
    state = state_with_slots(held("r0", 0, -5, 5), slot(1, 0, 5, 15), waiting=(job(1), job(2, minutes=3)))
    state.set_reservation("r0", None, ())
    # Nobody is there any more: job-1 need not wait for its slot, and job-2 has to.
    (start,) = plan_starts(state, at(1), ALL)
    assert (start.id, start.start, start.end) == ("job-1", at(1), at(11))
    assert plan_starts(state, at(1), ALL) == []


def test_what_ends_before_a_slot_goes_in_between() -> None:
    state = state_with_slots(
        held("r1", 1, -5, 5),
        slot(1, 0, 5, 15),
        slot(1, 1, 5, 15),
        waiting=(job(1, 2), job(2, minutes=6), job(3, minutes=5)),
        cards=2,
    )
    assert [start.id for start in plan_starts(state, T0, ALL)] == ["job-3"]


def test_a_late_start_is_told_and_lasts_as_long_as_nobody_comes_after_it() -> None:
    rows = (held("r0", 0, -5, 5), slot(1, 0, 5, 15), held("b", 0, 17, 20, is_held=False))
    state = state_with_slots(*rows, waiting=(job(1),))
    assert plan_starts(state, at(5), ALL) == []
    (late,) = late_starts(state, at(5))
    assert late.id == "job-1"
    assert late.late == ("r0",)
    state.set_reservation("r0", None, ())
    (start,) = plan_starts(state, at(9), ALL)
    assert (start.start, start.end) == (at(9), at(17))
    assert late_starts(state, at(9)) == []


@pytest.mark.parametrize(("most", "end"), [(2, 19), (1, 15)])
def test_a_late_start_lasts_no_longer_than_its_slot_where_a_quota_says_so(most: int, end: int) -> None:
    """Its owner's next job was promised another GPU from the end of that slot on."""
    state = state_with_slots(slot(1, 0, 5, 15), slot(2, 1, 15, 25), waiting=(job(1), job(2)), cards=2)
    state.set_quotas(QuotaBook(Policy([PolicyRule(Scope(), Rules(max_gpus=most))]), {0: "ann"}))
    state.note_held([Holding("job-2", ReservationKind.JOB, "ann", None, "h100", 1, at(15), at(25), planned=True)])
    start, *_ = plan_starts(state, at(9), ALL)
    assert (start.id, start.end) == ("job-1", at(end))


def test_who_is_about_to_be_started_in_its_slot_is_not_late() -> None:
    state = state_with_slots(held("r0", 0, -5, 5), slot(1, 0, 5, 15), waiting=(job(1),))
    assert plan_starts(state, at(4), ALL) == []
    state.set_reservation("r0", None, ())
    state.set_shares({})
    assert late_starts(state, at(5)) == []


def test_a_slot_on_a_card_that_is_lost_is_given_up_for_the_next_best() -> None:
    nodes = (node("a", 1), node("b", 1, first_id=10))
    rows = (held("r0", 0, -5, 5), held("r1", 10, -5, 30), slot(1, 0, 5, 15))
    state = World(nodes, rows, (job(1),)).state()
    assert plan_starts(state, T0, ALL) == []
    assert all_slots(state) == []
    lost = replace(nodes[0], gpus=(replace(nodes[0].gpus[0], condition=GpuCondition.LOST),))
    state.set_nodes((lost, nodes[1]))
    assert plan_starts(state, T0, ALL) == []
    (moved,) = all_slots(state)
    assert (moved.start, moved.because, [gpu.node for gpu in moved.gpus]) == (at(30), UNUSABLE, ["b"])
    state.set_nodes((lost,))
    assert plan_starts(state, T0, ALL) == []
    (none,) = all_slots(state)
    assert (none.gpus, none.because) == ((), UNUSABLE)
    assert all_slots(state) == []


def test_a_slot_that_is_over_is_given_up() -> None:
    state = state_with_slots(held("r0", 0, -5, 5), slot(1, 0, 5, 15), waiting=(job(1),))
    assert plan_starts(state, at(15), ALL) == []
    (moved,) = all_slots(state, at(15))
    assert (moved.start, moved.because) == (at(16), LAPSED)


def test_only_the_first_of_the_line_get_slots_and_whoever_comes_before_them() -> None:
    waiting = tuple(job(seq) for seq in range(1, 6))
    state = state_with_slots(held("r0", 0, -5, 5), waiting=waiting)
    assert plan_starts(state, T0, ALL) == []
    assert [slot.id for slot in plan_slots(state, T0, 2, ALL).slots] == ["job-1", "job-2"]
    state.set_reservation("job-9", job(9, priority=5), ())
    assert plan_starts(state, T0, ALL) == []
    (urgent,) = plan_slots(state, T0, 2, ALL).slots
    # It came before them in line, and yet does not move them.
    assert (urgent.id, urgent.start) == ("job-9", at(25))


def test_whoever_has_had_less_goes_first_among_equals() -> None:
    waiting = tuple(replace(job(seq), owner=seq % 2) for seq in range(1, 5))
    state = state_with_slots(held("r0", 0, -5, 5), waiting=waiting)
    state.set_shares({1: 7, 0: 3})
    assert plan_starts(state, T0, ALL) == []
    assert [slot.id for slot in all_slots(state)] == ["job-2", "job-4", "job-1", "job-3"]
    state.set_shares({})
    assert [estimate.id for estimate in estimate_waits(state, T0, ALL)] == ["job-1", "job-2", "job-3", "job-4"]


def test_whoever_has_had_less_need_not_mind_the_head_of_the_line() -> None:
    had_much, had_little = replace(job(1, 2), owner=1), replace(job(2, minutes=99), owner=2)
    state = state_with_slots(held("r0", 0, -5, 30), waiting=(had_much,), cards=2)
    state.set_shares({1: 5})
    assert plan_starts(state, T0, ALL) == []
    state.set_reservation("job-2", had_little, ())
    assert [start.id for start in plan_starts(state, T0, ALL)] == ["job-2"]


def test_before_there_is_a_slot_the_head_of_the_line_is_not_put_off() -> None:
    state = state_with_slots(held("r0", 0, -5, 5), waiting=(job(1, 2),), cards=2)
    assert plan_starts(state, T0, ALL) == []
    state.set_reservation("job-2", job(2, minutes=6), ())
    assert plan_starts(state, T0, ALL) == []
    assert [slot.start for slot in all_slots(state)] == [at(5), at(15)]
    state.set_reservation("job-3", job(3, minutes=6), ())
    state.set_reservation("job-4", job(4, minutes=5), ())
    assert [start.id for start in plan_starts(state, T0, ALL)] == ["job-4"]


def test_a_slot_is_forgotten_when_the_database_has_none() -> None:
    state = state_with_slots(held("r0", 0, -5, 5), slot(1, 0, 5, 15), waiting=(job(1),))
    longer = replace(job(1), length=20 * MINUTE, version=2)
    state.set_reservation("job-1", longer, ())
    assert plan_starts(state, T0, ALL) == []
    (new,) = all_slots(state)
    assert (new.start, new.end, new.version) == (at(5), at(25), 2)


@thousand
@given(worlds())
def test_a_part_of_the_work_ends_when_it_is_enough_and_the_next_goes_on(world: World) -> None:
    at_once, in_parts = world.state(), world.state()
    assert plan_starts(at_once, T0, ALL) == plan_starts(in_parts, T0, ALL)
    wanted = plan_slots(at_once, T0, ALL, ALL).slots
    given: list[PlannedSlot] = []
    for _ in range(ALL):
        part = plan_slots(in_parts, T0, ALL, ALL, enough=lambda: True)
        assert len(part.slots) <= 1
        given += part.slots
        if not part.more:
            break
        assert plan_starts(in_parts, T0, ALL) == []
    assert given == wanted


def test_the_time_is_asked_for_after_each_job_before_the_next_is_looked_for() -> None:
    state = Picture(snapshot([node("a", 1)], [held("r0", 0, -5, 60)], [job(1), job(2)]))
    assert plan_starts(state, T0, ALL) == []
    asked_with: list[int] = []

    def enough() -> bool:
        asked_with.append(len(state.ledger.slots))
        return False

    plan = plan_slots(state, T0, ALL, ALL, enough)
    assert [slot.id for slot in plan.slots] == ["job-1", "job-2"]
    assert asked_with == [1, 2]


def test_planning_leaves_nothing_for_the_garbage_collector() -> None:
    state = Picture(snapshot([node("a", 1)], [held("r0", 0, -5, 60)], [job(1), job(2)]))
    assert plan_starts(state, T0, ALL) == []
    gc.collect()
    gc.disable()
    try:
        assert len(plan_slots(state, T0, ALL, ALL).slots) == 2
        assert gc.collect() == 0
    finally:
        gc.enable()
