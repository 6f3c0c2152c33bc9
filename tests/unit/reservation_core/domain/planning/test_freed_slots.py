"""A walk passes over jobs that can't have an earlier slot: what it decides is what looking at all of them decides."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from random import Random
from unittest.mock import Mock, patch

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.calendar import to_moment
from reservation_core.domain.plan import Commitment, Shape
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import SlotSearch, plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.pools import freed_time
from reservation_core.domain.pools.freed_time import EarlierPlaces, FreedTime
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.statuses import ReservationKind
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, World, held, job, node, snapshot, worlds

ALL = 1000

often = ledger_examples(150, suppress_health_check=list(HealthCheck))
thousand = ledger_examples(1000, suppress_health_check=list(HealthCheck))


def decided(state: Picture, now: datetime, *, of_all: bool) -> list[object]:
    """All that is decided at one time; `of_all`: with a look at every job, and no quick look at what gangs need."""
    decisions: list[object] = []
    with patch.object(FreedTime, "are_enough", lambda *_: True) if of_all else nullcontext():
        for _ in range(ALL):
            decisions += plan_starts(state, now, ALL)
            for freed in state.pools.freed_time.values() if of_all else ():
                freed.add_all()
            plan = plan_slots(state, now, ALL, ALL)
            decisions += plan.slots
            if not plan.more:
                return decisions
    raise AssertionError("there is no end to it")


@thousand
@given(worlds(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=6))
def test_jobs_passed_over_could_not_have_had_an_earlier_slot(world: World, events: list[tuple[int, int, bool]]) -> None:
    some, every = world.state(), world.state()
    now = T0
    assert decided(some, now, of_all=False) == decided(every, now, of_all=True)
    for number, minutes, shortened in events:
        now += minutes * MINUTE
        ids = sorted(some.queue.slotted if shortened else some.ledger.by_reservation.keys() - some.ledger.slots.keys())
        for state in (some, every) if ids else ():
            chosen = ids[number % len(ids)]
            if shortened:
                # A waiting job asks for less, and keeps its slot.
                slot = [
                    Commitment(chosen, gpu_id, to_moment(start), to_moment(end), False, planned=True)
                    for gpu_id, (start, end, _, _) in state.ledger.by_reservation[chosen]
                ]
                state.set_reservation(chosen, replace(state.queue.jobs[chosen], length=MINUTE), slot)
            else:
                state.set_reservation(chosen, None, ())
        assert decided(some, now, of_all=False) == decided(every, now, of_all=True)


def crowded(chance: Random) -> Picture:
    """Two to four nodes, all GPUs taken for a while, a few for too long, and up to 40 jobs of all sizes with slots."""
    nodes = [node(f"n{number}", chance.choice((2, 4)), first_id=10 * number) for number in range(chance.randint(2, 4))]
    gpus = [gpu.id for one in nodes for gpu in one.gpus]
    rows = [held(f"r{gpu}", gpu, -5, chance.choice((-1, *range(5, 60)))) for gpu in gpus]
    rows += [held(f"b{gpu}", gpu, 70, chance.randint(71, 90), is_held=False) for gpu in gpus if chance.random() < 0.2]
    jobs = [
        job(seq, chance.choice((1, 1, 2, 3, 4)), chance.choice((1, 1, 1, 2)), minutes=chance.randint(1, 30))
        for seq in range(1, chance.randint(10, 40))
    ]
    return Picture(snapshot(nodes, rows, jobs))


def bound(seed: int) -> Picture:
    """The same with owners and projects that quotas bound, some for one type of GPU."""
    chance = Random(seed)
    picture = crowded(chance)
    owners = {job_id: chance.choice((1, 2, 3)) for job_id in sorted(picture.queue.jobs)}
    for job_id, owner in owners.items():
        asked = replace(picture.queue.jobs[job_id], owner=owner, project=chance.choice((None, None, "p")))
        picture.set_reservation(job_id, asked, ())
    rules = [
        PolicyRule(Scope(user="ann"), Rules(max_gpus=4)),
        PolicyRule(Scope(user="bo", gpu_type="h100"), Rules(max_gpus=4)),
        PolicyRule(Scope(project="p"), Rules(max_gpus=4)),
    ]
    picture.set_quotas(QuotaBook(Policy(rules), {1: "ann", 2: "bo", 3: "cy"}))
    picture.note_held(
        Holding(
            name, ReservationKind.JOB, chance.choice(("ann", "bo")), None, "h100", 1, to_moment(start), to_moment(end)
        )
        for name, rows in sorted(picture.ledger.by_reservation.items())
        for _, (start, end, is_held, _) in rows
        if is_held
    )
    return picture


@often
@given(st.integers(0, 2**32), st.booleans())
def test_nor_where_many_wait_for_what_few_give_back(seed: int, has_quotas: bool) -> None:
    """Each step ends, moves or cuts short several at once, so that slots move while others are looked at."""
    some, every = (bound(seed) if has_quotas else crowded(Random(seed)) for _ in range(2))
    now = T0
    assert decided(some, now, of_all=False) == decided(every, now, of_all=True)
    chance = Random(seed)
    for _ in range(5):
        now += chance.choice((0, 0, 1, 3)) * MINUTE
        known = sorted(some.ledger.by_reservation)
        gone = chance.sample(known, min(len(known), chance.randint(1, 3)))
        for state in (some, every):
            for reservation_id in gone:
                state.set_reservation(reservation_id, None, ())
        assert decided(some, now, of_all=False) == decided(every, now, of_all=True)


@often
@given(st.integers(0, 2**32))
def test_a_walk_in_the_smallest_parts_leaves_no_earlier_slot(seed: int) -> None:
    chance = Random(seed)
    state, now = crowded(chance), T0
    decided(state, now, of_all=False)
    for _ in range(3):
        known = sorted(state.ledger.by_reservation)
        for gone in chance.sample(known, min(len(known), chance.randint(1, 3))):
            state.set_reservation(gone, None, ())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(freed_time, "_READ", 1)
            for _ in range(ALL):
                starts = plan_starts(state, now, ALL)
                plan = plan_slots(state, now, ALL, ALL, lambda: True)
                if not (starts or plan.more):
                    break
        assert not plan.more
        state.pools.walk_again()
        assert decided(state, now, of_all=True) == []


@often
@given(st.integers(0, 2**32), st.booleans())
def test_nor_does_one_amid_which_more_is_given_back_or_jobs_are_put_forward(seed: int, has_quotas: bool) -> None:
    chance = Random(seed)
    state = bound(seed) if has_quotas else crowded(chance)
    decided(state, T0, of_all=False)
    more = True
    for number in range(ALL):
        if number < 15 and chance.random() < 0.4:
            slotted = sorted(state.queue.slotted)
            if slotted and chance.random() < 0.5:
                chosen = chance.choice(slotted)
                slot = [
                    Commitment(chosen, gpu_id, to_moment(start), to_moment(end), False, planned=True)
                    for gpu_id, (start, end, _, _) in state.ledger.by_reservation[chosen]
                ]
                ahead = replace(state.queue.jobs[chosen], priority=chance.randint(0, 2))
                state.set_reservation(chosen, ahead, slot)
            elif state.ledger.by_reservation:
                state.set_reservation(chance.choice(sorted(state.ledger.by_reservation)), None, ())
        starts = plan_starts(state, T0, ALL)
        more = plan_slots(state, T0, ALL, ALL, lambda: chance.random() < 0.5).more or bool(starts)
        if number >= 15 and not more:
            break
    assert not more
    state.pools.walk_again()
    assert decided(state, T0, of_all=True) == []


def test_the_next_part_passes_over_as_many_at_once_as_the_one_before() -> None:
    rows = [held("r", 0, -5, 60), held("b", 0, 60, 75, is_held=False), held("c", 0, 75, 90, is_held=False)]
    state = Picture(snapshot([node("a", 1)], rows, [job(seq, minutes=30) for seq in range(1, 61)]))
    decided(state, T0, of_all=False)
    state.set_reservation("b", None, ())
    parts = 1
    while plan_starts(state, T0, ALL) or plan_slots(state, T0, ALL, ALL, lambda: True).more:
        parts += 1
    assert parts == 4  # up to 4, 12, 28 and 60


def test_the_time_is_asked_for_whenever_some_jobs_were_passed_over() -> None:
    rows = [held("r", 0, -5, 60), held("b", 0, 60, 75, is_held=False), held("c", 0, 75, 90, is_held=False)]
    state = Picture(snapshot([node("a", 1)], rows, [job(seq, minutes=30) for seq in range(1, 61)]))
    decided(state, T0, of_all=False)
    state.set_reservation("b", None, ())
    asked = Mock(return_value=False)
    assert plan_starts(state, T0, ALL) == []
    assert not plan_slots(state, T0, ALL, ALL, asked).slots
    assert asked.call_count == 3  # after 4, 12 and 28


def test_nodes_for_a_gang_are_read_one_at_a_time_before_it_is_searched() -> None:
    nodes = [node(f"n{number}", 1, first_id=number) for number in range(3)]
    rows = [held(f"r{number}", number, -5, 10 + 10 * number) for number in range(3)]
    state = Picture(snapshot(nodes, rows, [job(1, 1, 2)]))
    decided(state, T0, of_all=False)
    profile = state.pools.profiles["h100"]
    for position in range(3):
        profile.forget(position, freed=True)
    search, gang = SlotSearch(state, state.at), state.queue.jobs["job-1"]
    assert [search.is_ready(gang, lambda: True) for _ in range(4)] == [False, False, False, True]
    with patch.object(Timeline, "windows", Mock(side_effect=AssertionError)):
        assert search.plan_slot(gang) == []


def test_a_gang_is_searched_though_nodes_are_forgotten_before_each_part() -> None:
    """Those whose pods overrun are: nobody knows when their GPUs come back."""
    nodes = [node(f"n{number}", 1, first_id=number) for number in range(5)]
    rows = [held(f"r{number}", number, -5, end) for number, end in enumerate((-1, -1, -1, 60, 90))]
    state = Picture(snapshot(nodes, rows, [job(1, 1, 4)]))
    decided(state, T0, of_all=False)
    state.set_reservation("r4", None, ())
    parts = 1
    while plan_starts(state, T0, ALL) or plan_slots(state, T0, ALL, ALL, lambda: True).more:
        parts += 1
        assert parts < 20
    assert to_moment(state.ledger.slots["job-1"][0]) < T0 + 60 * MINUTE


@pytest.mark.parametrize("by", ["share", "priority"])
def test_who_comes_forward_amid_a_walk_is_not_passed_by(by: str) -> None:
    rows = [held("r", 0, -5, 60), held("b", 0, 60, 75, is_held=False), held("c", 0, 75, 90, is_held=False)]
    waiting = [replace(job(seq, minutes=30), owner=1) for seq in range(1, 201)]
    state = Picture(snapshot([node("a", 1)], rows, [*waiting, replace(job(201, minutes=10), owner=2)]))
    state.set_shares({1: 1, 2: 2})
    decided(state, T0, of_all=False)
    state.set_reservation("b", None, ())
    plan_starts(state, T0, ALL)
    assert plan_slots(state, T0, ALL, ALL, lambda: True).more
    if by == "share":
        state.set_shares({1: 1, 2: 0})
    else:
        start, end = state.ledger.slots["job-201"]
        slot = [Commitment("job-201", 0, to_moment(start), to_moment(end), False, planned=True)]
        state.set_reservation("job-201", replace(state.queue.jobs["job-201"], priority=1), slot)
    decided(state, T0, of_all=False)
    assert to_moment(state.ledger.slots["job-201"][0]) == T0 + 60 * MINUTE


def test_what_was_looked_at_is_forgotten_with_the_nodes_and_when_the_walk_is_over() -> None:
    state = Picture(snapshot([node("a", 1)], [held("r", 0, -5, 60), held("b", 0, 60, 75, is_held=False)], [job(1)]))
    decided(state, T0, of_all=False)
    state.set_reservation("b", None, ())
    decided(state, T0, of_all=False)
    assert not state.walk.looked
    state.set_reservation("r", None, ())
    state.walk.looked[EarlierPlaces({}, Shape(1, 1), lambda _: ("", (0, 0, False, ""), {}))] = 0, 0
    state.set_nodes([node("a", 1), node("b", 1, first_id=10)])
    assert not state.walk.looked


def test_in_a_new_pool_all_are_looked_at_once_and_what_comes_meanwhile_counts_for_the_next_walk() -> None:
    freed = Picture(snapshot([node("a", 1)], (), ())).pools.freed_time["h100"]

    def may_begin(job_id: str) -> bool | None:
        return EarlierPlaces({"h100": freed}, Shape(1, 1), lambda _: ("", (0, 0, False, ""), {})).may_begin(
            job_id, 1, 1, 0
        )

    assert may_begin("job-1")
    freed.begin_walk()
    freed.add_job("job-2")
    assert freed.everywhere == (True, False)
    freed.begin_walk()
    assert freed.everywhere == (False, False)
    assert [may_begin(job_id) for job_id in ("job-1", "job-2")] == [False, True]
    freed.add_all()
    freed.begin_walk()
    assert may_begin("job-1")
