"""Many jobs that wait for one other."""

from dataclasses import replace

import pytest

from reservation_core.domain.plan import Need, Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.waiting_queue import Order, WaitingQueue
from tests.unit.reservation_core.domain.planning.chains.test_chain_slots import MANY
from tests.unit.reservation_core.domain.planning.worlds import T0, at, held, job, node, snapshot


def test_no_part_of_the_work_on_many_dependants_of_one_job_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are lined up a few at a time, and the decisions are the same."""
    lined_up = most = 0
    order = WaitingQueue.order

    def counted(queue: WaitingQueue, job: Waiting) -> Order:
        nonlocal lined_up
        lined_up += 1
        return order(queue, job)

    def enough() -> bool:
        nonlocal lined_up, most
        lined_up, most = 0, max(most, lined_up)
        return True

    monkeypatch.setattr(WaitingQueue, "order", counted)
    slots = []
    for is_short_of_time in (False, True):
        planner = CalendarPicture(snapshot([node("n0", 1, first_id=1)], [held("job-0", 1, 0, 10)], ()))
        for seq in range(1, 301):
            one = replace(job(seq, priority=seq % 7), needs=(Need("job-0", by_start=False),))
            planner.set_reservation(one.id, one, ())
        planner.plan_starts(T0, MANY)
        lined_up = 0
        while planner.plan_slots(T0, 20, MANY, enough if is_short_of_time else lambda: False).more:
            pass
        slots.append(planner.common.ledger.slots)
    assert len(slots[0]) == 20
    assert slots[0] == slots[1]
    assert 0 < most < 50


def test_slots_that_have_come_are_given_up_though_time_is_short() -> None:
    """More than are lined up at once: those that are lined up already are not lined up again."""
    planner = CalendarPicture(snapshot([node("n0", 40, first_id=1)], [held("job-0", 1, 0, 10)], ()))
    for seq in range(1, 36):
        one = replace(job(seq), needs=(Need("job-0", by_start=False),))
        planner.set_reservation(one.id, one, ())
    planner.plan_starts(T0, MANY)
    planner.plan_slots(T0, MANY, MANY)
    assert len(planner.common.ledger.slots) == 35
    for now in (at(10), at(11)):  # job-0 overruns
        for _ in range(100):
            planner.plan_starts(now, MANY)
            planner.plan_slots(now, MANY, MANY, lambda: True)
    assert planner.common.ledger.slots == {}
