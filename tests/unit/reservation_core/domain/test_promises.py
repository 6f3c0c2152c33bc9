"""The promise, in simulated worlds: whatever comes in later, nobody starts after what they were promised.

Jobs of all priorities, owners, types and sizes arrive at random; they are cancelled, end early, are extended; bookings
are made and cancelled. Who makes a booking or extends a job is refused what the ledger's constraint would refuse.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, Slot, Start, Waiting
from tests.unit.reservation_core.domain.worlds import (
    MINUTE,
    T0,
    World,
    choices,
    inventories,
    is_free,
    jobs,
    types_for,
)

OPERATIONS = (
    *("arrive",) * 6,
    *("cancel", "book", "book", "unbook", "extend", "extend", "shares"),
    *("finish",) * 3,
    *("pass_time",) * 6,
)
STEPS = tuple(product(OPERATIONS, range(12)))
MANY = 1000


class Simulation:
    """What is true, beside a planner that is told of it bit by bit; every step is followed by all that it decides."""

    def __init__(self, world: World, limit: int) -> None:
        self.world = world
        self.limit = limit
        self.planner = world.state()
        self.now: datetime = T0
        self.cards = {gpu.id: gpu for each in world.nodes for gpu in each.gpus}
        self.waiting: dict[str, Waiting] = {}
        self.running: dict[str, list[Commitment]] = {}
        self.booked: dict[str, list[Commitment]] = {}
        self.slots: dict[str, Slot] = {}
        self.promises: dict[str, datetime] = {}
        self.started: dict[str, datetime] = {}
        self.next_seq = 1
        self.refused = 0

    def rows(self, without: str = "") -> list[Commitment]:
        """Every open row of the ledger but those of one reservation."""
        its = [row for some in (self.running, self.booked) for owner in some if owner != without for row in some[owner]]
        return its + [row for owner, slot in self.slots.items() if owner != without for row in _rows(slot)]

    def tell(self, reservation_id: str) -> None:
        rows = [*self.running.get(reservation_id, ()), *self.booked.get(reservation_id, ())]
        if reservation_id in self.slots:
            rows += _rows(self.slots[reservation_id])
        self.planner.set_reservation(reservation_id, self.waiting.get(reservation_id), rows)

    def plan(self) -> None:
        for _ in range(MANY):
            starts = self.planner.plan_starts(self.now, self.limit)
            for start in starts:
                self._start(start)
            plan = self.planner.plan_slots(self.now, MANY, self.limit)
            for slot in plan.slots:
                self._give(slot)
            if not plan.more and len(starts) < self.limit:
                return
        raise AssertionError("there is no end to planning")

    def _start(self, start: Start) -> None:
        wanted = self.waiting.pop(start.id)
        slot = self.slots.pop(start.id, None)
        # Nobody is disturbed: not those who run, what is booked, nor anybody's slot.
        others = self.rows()
        assert all(is_free(self.cards[gpu.gpu_id], others, start.start, start.end, self.now) for gpu in start.gpus)
        assert start.start == self.now
        assert start.end >= self.now + wanted.length or (slot is not None and start.end == slot.end)
        self.started[start.id] = self.now
        self.running[start.id] = [Commitment(start.id, gpu.gpu_id, start.start, start.end, True) for gpu in start.gpus]
        assert self.now <= self.promises.get(start.id, self.now)

    def _give(self, slot: Slot) -> None:
        before = self.slots.get(slot.id)
        assert before is None or slot.start < before.start
        others = self.rows(slot.id)
        assert all(is_free(self.cards[gpu.gpu_id], others, slot.start, slot.end, self.now) for gpu in slot.gpus)
        self.slots[slot.id] = slot
        self.promises.setdefault(slot.id, slot.start)
        assert slot.start <= self.promises[slot.id]

    def do(self, operation: str, number: int, data: st.DataObject) -> None:
        match operation:
            case "arrive":
                self._arrive(replace(data.draw(jobs(self.next_seq)), owner=number % 3))
            case "cancel" if self.waiting:
                gone = list(self.waiting)[number % len(self.waiting)]
                del self.waiting[gone]
                self.slots.pop(gone, None)
                self.promises.pop(gone, None)
                self.tell(gone)
            case "finish" if self.running:
                self._end(list(self.running)[number % len(self.running)])
            case "extend" if self.running:
                self._extend(list(self.running)[number % len(self.running)], (1 + number // 2) * MINUTE)
            case "book" if self.cards:
                self._book(list(self.cards)[number % len(self.cards)], data)
            case "unbook" if self.booked:
                gone = list(self.booked)[number % len(self.booked)]
                del self.booked[gone]
                self.tell(gone)
            case "shares":
                self.planner.set_shares({number % 3: number % 5, (number + 1) % 3: number % 4})
            case "pass_time":
                for _ in range(1 + number // 4):
                    self.pass_minute()
            case _:
                pass

    def _arrive(self, wanted: Waiting) -> None:
        self.next_seq += 1
        self.waiting[wanted.id] = wanted
        self.tell(wanted.id)

    def _end(self, gone: str) -> None:
        del self.running[gone]
        self.tell(gone)

    def _extend(self, chosen: str, by: timedelta) -> None:
        rows = [replace(row, end=row.end + by) for row in self.running[chosen]]
        others = self.rows(chosen)
        if all(is_free(self.cards[row.gpu_id], others, row.start, row.end, self.now) for row in rows):
            self.running[chosen] = rows
            self.tell(chosen)
        else:
            self.refused += 1

    def _book(self, gpu_id: int, data: st.DataObject) -> None:
        start = self.now + data.draw(st.integers(1, 12)) * MINUTE
        end = start + data.draw(st.integers(1, 8)) * MINUTE
        if is_free(self.cards[gpu_id], self.rows(), start, end, self.now):
            name = f"bkg-{len(self.booked)}-{self.next_seq}-{self.now.minute}-{gpu_id}-{start.minute}-{end.minute}"
            self.booked[name] = [Commitment(name, gpu_id, start, end, False)]
            self.tell(name)

    def pass_minute(self) -> None:
        self.now += MINUTE
        for some in (self.running, self.booked):
            for over in [owner for owner, rows in some.items() if rows[0].end <= self.now]:
                del some[over]
                self.tell(over)
        self.plan()


def _rows(slot: Slot) -> list[Commitment]:
    return [Commitment(slot.id, gpu.gpu_id, slot.start, slot.end, False, planned=True) for gpu in slot.gpus]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    inventories(), st.lists(st.sampled_from(STEPS), min_size=8, max_size=40), st.sampled_from((MANY, 1, 3)), st.data()
)
def test_no_later_submission_makes_a_job_start_after_its_promise(
    nodes: tuple[Node, ...], steps: list[tuple[str, int]], limit: int, data: st.DataObject
) -> None:
    simulation = Simulation(World(nodes, (), ()), limit)
    for operation, number in steps:
        simulation.do(operation, number, data)
        simulation.plan()
    ever = {
        each.id
        for each in simulation.waiting.values()
        if any(any(choices(nodes, each, gpu_type)) for gpu_type in types_for(nodes, each))
    }
    # Whoever can be placed at all has a promise at once, and starts when nothing new comes any more.
    assert ever == simulation.slots.keys()
    for _ in range(600):
        if not ever & simulation.waiting.keys():
            break
        simulation.pass_minute()
    assert ever <= simulation.started.keys()
    assert all(simulation.started[each] <= simulation.promises[each] for each in ever)
