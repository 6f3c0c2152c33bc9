"""A job starts over the slots of others only where each of these still starts as promised."""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.plan import Commitment, PlannedSlot, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import UNUSABLE, plan_slots
from reservation_core.domain.planning.standings import BY_AREA, Orders
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.policy.limits import Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.policy.quota_book import QuotaBook
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import (
    MINUTE,
    T0,
    World,
    at,
    commitments_of,
    held,
    is_free,
    node,
    snapshot,
    worlds,
)
from tests.unit.reservation_core.domain.planning.worlds import job as job_of_old

ALL = 1000


def job(seq: int, gpus: int = 1, *, minutes: int = 10) -> Waiting:
    """A job that comes now."""
    return replace(job_of_old(seq, gpus, minutes=minutes), submitted_at=to_micros(T0))


def slot(seq: int, gpu_id: int, start: int, end: int) -> Commitment:
    return replace(held(f"job-{seq}", gpu_id, start, end, is_held=False), planned=True)


def promised(waiting: Waiting, minutes: int) -> Waiting:
    return replace(waiting, promised_at=to_micros(at(minutes)))


def picture(*rows: Commitment, waiting: tuple[Waiting, ...], orders: Orders = BY_AREA) -> Picture:
    made = Picture(snapshot((node("a", 2),), rows, waiting))
    made.set_orders(orders)
    return made


def decided(state: Picture) -> tuple[list[str], dict[str, datetime]]:
    """The jobs that start at T0, and the slots that are decided."""
    starts = [start.id for start in plan_starts(state, T0, ALL)]
    slots: dict[str, datetime] = {}
    more = True
    while more:
        plan = plan_slots(state, T0, ALL, ALL)
        slots |= {planned.id: planned.start for planned in plan.slots}
        starts += [start.id for start in plan_starts(state, T0, ALL)]
        more = plan.more
    return starts, slots


WIDE = (slot(1, 0, 5, 15), slot(1, 1, 5, 15))
"""A job of both GPUs, which waits for the other to be free."""
BUSY = held("r", 1, -5, 5)


def test_a_small_job_starts_over_a_slot_that_may_be_later() -> None:
    waiting = (promised(job(1, 2), 8), job(2, minutes=8))
    starts, slots = decided(picture(BUSY, *WIDE, waiting=waiting))
    assert starts == ["job-2"]
    assert slots["job-1"] == at(8)


def test_it_does_not_where_the_other_would_lose_its_promise() -> None:
    waiting = (promised(job(1, 2), 7), job(2, minutes=8))
    state = picture(BUSY, *WIDE, waiting=waiting)
    starts, slots = decided(state)
    assert starts == []
    assert slots == {"job-2": at(15)}
    assert state.ledger.slots["job-1"] == (to_micros(at(5)), to_micros(at(15)))
    assert state.pools.by_type["h100"].free == 1


def test_the_slot_counts_as_the_promise_where_none_is_known() -> None:
    starts, _ = decided(picture(BUSY, *WIDE, waiting=(job(1, 2), job(2, minutes=8))))
    assert starts == []


def test_a_project_in_the_order_of_arrival_neither_makes_room_nor_is_given_any() -> None:
    waiting = (promised(replace(job(1, 2), project="lab"), 8), job(2, minutes=8))
    orders = Orders(by_area=True, others=frozenset({"lab"}))
    assert decided(picture(BUSY, *WIDE, waiting=waiting, orders=orders))[0] == []
    waiting = (promised(job(1, 2), 8), replace(job(2, minutes=8), project="lab"))
    assert decided(picture(BUSY, *WIDE, waiting=waiting, orders=orders))[0] == []


def test_a_promise_is_by_the_slack_later_than_its_slot() -> None:
    state = Picture(snapshot((node("a", 2),), (BUSY,), (job(1, 2),)), slack=3 * MINUTE)
    state.set_orders(BY_AREA)
    assert decided(state) == ([], {"job-1": at(5)})
    state.set_reservation("job-2", job(2, minutes=8), ())
    assert decided(state) == (["job-2"], {"job-1": at(8), "job-2": T0})
    state.set_reservation("job-3", job(3, minutes=9), ())
    assert decided(state)[0] == []


@ledger_examples(1000, suppress_health_check=list(HealthCheck))
@given(worlds(), st.lists(st.integers(0, 99), min_size=1, max_size=4), st.integers(0, 30))
def test_whatever_makes_room_keeps_its_promise_and_no_gpu_is_given_twice(
    world: World, leaving: list[int], slack: int
) -> None:
    state = Picture(snapshot(world.nodes, world.commitments, world.waiting), slack=slack * MINUTE)
    state.set_orders(BY_AREA)
    rows: dict[str, list[Commitment]] = {}
    for row in world.commitments:
        rows.setdefault(row.reservation_id, []).append(row)
    promises: dict[str, datetime] = {}
    plan_all(world, state, rows, promises, slack)
    for number in leaving:
        ending = [owner for owner in sorted(rows) if not any(row.planned for row in rows[owner])]
        if ending:
            gone = ending[number % len(ending)]
            del rows[gone]
            state.set_reservation(gone, None, ())
        plan_all(world, state, rows, promises, slack)


def plan_all(
    world: World, state: Picture, rows: dict[str, list[Commitment]], promises: dict[str, datetime], slack: int
) -> None:
    """All that there is to decide, with what the ledger and the promises would say to it."""
    more = True
    while more:
        starts = plan_starts(state, T0, ALL)
        for start in starts:
            assert start.start <= promises.get(start.id, T0)
            rows[start.id] = commitments_of(start)
        plan = plan_slots(state, T0, ALL, ALL)
        for planned in plan.slots:
            rows[planned.id] = _rows_of(planned)
            promises.setdefault(planned.id, planned.start + timedelta(minutes=slack))
            assert planned.start <= promises[planned.id]
        _check_disjoint(world, rows)
        assert {owner for owner, its in rows.items() if its[0].planned} == state.queue.slotted
        more = bool(starts) or plan.more


def _rows_of(planned: PlannedSlot) -> list[Commitment]:
    return [Commitment(planned.id, gpu.gpu_id, planned.start, planned.end, False, planned=True) for gpu in planned.gpus]


def _check_disjoint(world: World, rows: dict[str, list[Commitment]]) -> None:
    cards = {gpu.id: gpu for listed in world.nodes for gpu in listed.gpus}
    for owner, its in rows.items():
        others = [row for other, theirs in rows.items() if other != owner for row in theirs]
        for row in its:
            if row.planned:
                assert is_free(cards[row.gpu_id], others, row.start, row.end, T0)


def test_a_job_that_lost_its_gpus_and_may_have_no_others_waits_without_a_slot() -> None:
    nodes = (node("a", 2), node("b", 2, first_id=10))
    state = Picture(snapshot(nodes, WIDE, (promised(job(1, 2), 8),)))
    state.set_orders(BY_AREA)
    state.set_quotas(QuotaBook(Policy([PolicyRule(Scope(), Rules(max_gpus=1))]), {0: "ann"}))
    plan_starts(state, T0, ALL)
    state.set_nodes((replace(nodes[0], available=False), nodes[1]))
    plan_starts(state, T0, ALL)
    plan = plan_slots(state, T0, ALL, ALL)
    assert [(planned.id, planned.gpus, planned.because) for planned in plan.slots] == [("job-1", (), UNUSABLE)]
    assert not state.queue.slotted


def test_small_jobs_before_a_slot_get_no_more_slots_than_twice_the_promises() -> None:
    busy = (held("r0", 0, -5, 500), held("r1", 1, -5, 500))
    state = picture(*busy, waiting=tuple(job(seq, 2, minutes=100) for seq in range(1, 4)))
    for _ in range(3):
        plan_starts(state, T0, ALL)
        plan_slots(state, T0, 3, ALL)
    for seq in range(4, 40):
        state.set_reservation(f"job-{seq}", job(seq, minutes=5), ())
        plan_starts(state, T0, ALL)
        plan_slots(state, T0, 3, ALL)
    assert len(state.queue.slotted) == 6


def test_a_job_ahead_is_not_moved_to_a_later_slot() -> None:
    first = replace(promised(job(1, 2), 5000), priority=10)
    state = picture(BUSY, *WIDE, waiting=(first, job(2, minutes=4000)))
    starts, slots = decided(state)
    assert starts == []
    assert "job-1" not in slots


def test_a_try_that_comes_to_nothing_leaves_no_marks() -> None:
    state = picture(BUSY, *WIDE, waiting=(promised(job(1, 2), 7), job(2, minutes=8)))
    state.set_quotas(QuotaBook(Policy([PolicyRule(Scope(), Rules(max_gpus=99))]), {0: "ann"}))
    decided(state)
    state.walk.forget_tries()
    state.pools.freed.add("h100")
    decided(state)
    assert state.walk.tries > 0
    assert state.pools.marks() == (set(), set(), {"h100": (False, False)}, (set(), set()))
