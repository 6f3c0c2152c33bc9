"""Preemptible jobs beside promises and bookings: whatever they do, nobody's promise and no booking is late for them.

Their leases are renewed and they are asked for their GPUs as `usecases.running.preempt` does; each keeps its GPUs as
long as it ever may after that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.model import Node, Preemption
from reservation_core.domain.plan import Commitment, PlannedSlot, Start, Waiting
from reservation_core.domain.planning import making_room
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.planning.making_room import MOST_COMPARED
from reservation_core.domain.pools.least_loss import Choice, Offer, fewest_lost
from reservation_core.domain.request_terms import EndSignal, SignalName
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import T0, at, job, node, snapshot

LOOK = timedelta(seconds=5)
WHILE = timedelta(seconds=20)
TURNAROUND = timedelta(seconds=30)
ALLOWANCE = timedelta(minutes=1)
NEEDS = TURNAROUND + 2 * WHILE
MANY = 1000


@dataclass
class Running:
    """A job with GPUs; a preemptible one that was asked goes back to `waiting` at `gone_at`."""

    rows: list[Commitment]
    ends_at: datetime
    terms: Preemption
    wanted: Waiting
    asked_at: datetime | None = None

    @property
    def gone_at(self) -> datetime:
        if self.asked_at is None:
            return self.ends_at
        return min(self.ends_at, self.asked_at + self.terms.lead + TURNAROUND)


@dataclass
class System:
    """A ledger, a planner, and who gives GPUs back."""

    nodes: tuple[Node, ...]
    chance: Random
    now: datetime = T0
    seq: int = 0
    waiting: dict[str, Waiting] = field(default_factory=dict)
    terms: dict[str, Preemption] = field(default_factory=dict)
    lengths: dict[str, timedelta] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    booked: dict[str, list[Commitment]] = field(default_factory=dict)
    slots: dict[str, PlannedSlot] = field(default_factory=dict)
    promises: dict[str, datetime] = field(default_factory=dict)
    starts: int = 0
    preemptions: int = 0

    def __post_init__(self) -> None:
        self.planner = CalendarPicture(snapshot(self.nodes, (), ()))

    def rows(self, without: str) -> list[Commitment]:
        found = [row for held in self.running.values() for row in held.rows]
        found += [row for rows in self.booked.values() for row in rows]
        found += [row for slot in self.slots.values() for row in rows_of(slot)]
        return [row for row in found if row.reservation_id != without]

    def submit(self) -> None:
        self.seq += 1
        minutes = self.chance.randint(1, 40)
        wanted = job(self.seq, self.chance.randint(1, 4), self.chance.choice((1, 1, 2)), minutes=minutes)
        length = minutes * timedelta(minutes=1)
        terms = Preemption()
        if self.chance.random() < 0.5:
            signal = self.chance.choice(
                (None, EndSignal(SignalName.USR1, timedelta(seconds=self.chance.randint(0, 90))))
            )
            least = self.chance.choice((timedelta(0), timedelta(minutes=self.chance.randint(1, minutes))))
            terms = Preemption(True, least, signal)
        kept = min(terms.kept, length) if terms.preemptible else length
        wanted = replace(wanted, length=ALLOWANCE + TURNAROUND + kept, preemptible=terms.preemptible)
        self.terms[wanted.id], self.lengths[wanted.id] = terms, length
        self.waiting[wanted.id] = wanted
        self.tell(wanted.id)

    def book(self) -> None:
        self.seq += 1
        all_gpus = [gpu.id for one in self.nodes for gpu in one.gpus]
        gpus = self.chance.sample(all_gpus, self.chance.randint(1, min(3, len(all_gpus))))
        start = self.now + timedelta(minutes=self.chance.randint(0, 60))
        end = start + timedelta(minutes=self.chance.randint(5, 60))
        mine = [Commitment(f"booking-{self.seq}", gpu, start, end, False) for gpu in gpus]
        if not any(overlap(row, other) for row in mine for other in self.rows("")):
            self.booked[f"booking-{self.seq}"] = mine
            self.tell(f"booking-{self.seq}")

    def tell(self, reservation_id: str) -> None:
        held = self.running.get(reservation_id)
        rows = [*(held.rows if held else ()), *self.booked.get(reservation_id, ())]
        if reservation_id in self.slots:
            rows += rows_of(self.slots[reservation_id])
        self.planner.set_reservation(reservation_id, self.waiting.get(reservation_id), rows)

    def pass_time(self) -> None:
        self.now += LOOK
        for reservation_id, rows in [*self.booked.items()]:
            if rows[0].end <= self.now:
                del self.booked[reservation_id]
                self.tell(reservation_id)
        for job_id, held in [*self.running.items()]:
            if held.gone_at <= self.now:
                del self.running[job_id]
                if held.asked_at is not None and held.gone_at < held.ends_at:
                    self.waiting[job_id] = held.wanted
                    self.preemptions += 1
                self.tell(job_id)
        for reservation_id, rows in self.booked.items():
            if rows[0].start <= self.now:
                cards = {row.gpu_id for row in rows}
                late = [row for row in self.rows(reservation_id) if row.held and row.gpu_id in cards]
                assert not late

    def look(self) -> None:
        """As `gpus_needed` and `renew_leases` have it."""
        for job_id, held in self.running.items():
            if not held.terms.preemptible or held.asked_at is not None:
                continue
            cards = {row.gpu_id for row in held.rows}
            others = [row.start for row in self.rows(job_id) if row.gpu_id in cards]
            begun, ahead = held.rows[0].start, self.now + held.terms.lead + NEEDS
            if begun + held.terms.min_runtime <= self.now and any(start <= ahead for start in others):
                held.asked_at = self.now
                continue
            until = min(held.ends_at, ahead)
            if held.rows[0].end < min(until, ahead - WHILE) and not any(start < until for start in others):
                held.rows = [replace(row, end=until) for row in held.rows]
                self.tell(job_id)

    def plan(self) -> None:
        for _ in range(MANY):
            starts = self.planner.plan_starts(self.now, MANY)
            for start in starts:
                self.start(start)
            plan = self.planner.plan_slots(self.now, MANY, MANY)
            for slot in plan.slots:
                assert not self.waiting[slot.id].preemptible
                self.slots[slot.id] = slot
                self.promises.setdefault(slot.id, slot.start)
                assert slot.start <= self.promises[slot.id]
                assert not any(overlap(row, other) for row in rows_of(slot) for other in self.rows(slot.id))
            if not plan.more and not starts:
                return
        raise AssertionError("there is no end to planning")

    def start(self, start: Start) -> None:
        wanted = self.waiting.pop(start.id)
        self.slots.pop(start.id, None)
        assert self.now <= self.promises.get(start.id, self.now) + LOOK
        terms = self.terms[start.id]
        rows = [
            Commitment(start.id, gpu.gpu_id, self.now, start.end, True, preemptible=terms.preemptible)
            for gpu in start.gpus
        ]
        assert not any(overlap(row, other) for row in rows for other in self.rows(start.id))
        assert not any(row.held for row in self.rows(start.id) if row.gpu_id in {one.gpu_id for one in rows})
        ends_at = self.now + self.lengths[start.id] + TURNAROUND
        if terms.preemptible:  # it runs at once, and the start's allowance is given back
            rows = [replace(row, end=start.end - ALLOWANCE) for row in rows]
        self.running[start.id] = Running(rows, ends_at, terms, wanted)
        self.starts += 1
        self.tell(start.id)


def rows_of(slot: PlannedSlot) -> list[Commitment]:
    return [Commitment(slot.id, gpu.gpu_id, slot.start, slot.end, False, planned=True) for gpu in slot.gpus]


def overlap(row: Commitment, other: Commitment) -> bool:
    return row.gpu_id == other.gpu_id and row.start < other.end and other.start < row.end


def nodes_of(sizes: list[int]) -> tuple[Node, ...]:
    return tuple(node(f"n{number}", size, first_id=1 + 8 * number) for number, size in enumerate(sizes))


def lived(sizes: list[int], seed: int, looks: int) -> System:
    system = System(nodes_of(sizes), Random(seed))
    for _ in range(looks):
        if system.chance.random() < 0.04:
            system.submit()
        if system.chance.random() < 0.01:
            system.book()
        # As in the processor, a look comes when it comes: before the plan, or after it.
        before = system.chance.random() < 0.5
        if before:
            system.look()
        system.plan()
        if not before:
            system.look()
        system.pass_time()
    return system


@ledger_examples()
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 2**32), st.integers(100, 700))
def test_no_promise_and_no_booking_is_late_for_a_preemptible_job(sizes: list[int], seed: int, looks: int) -> None:
    lived(sizes, seed, looks)


def test_the_histories_have_preemptions_in_them() -> None:
    systems = [lived([4, 4, 2], seed, 1500) for seed in range(3)]
    assert all(system.preemptions >= 3 and system.starts >= 20 for system in systems)


def test_a_preemptible_job_goes_after_all_others_and_gets_no_slot() -> None:
    first = replace(job(1, 4, minutes=10), preemptible=True)
    second = job(2, 4, minutes=10)
    third = replace(job(3, 4, minutes=10), preemptible=True, priority=5)
    picture = CalendarPicture(snapshot(nodes_of([4]), (), (first, second, third)))
    assert [start.id for start in picture.plan_starts(T0, 10)] == ["job-2"]
    assert picture.plan_slots(T0, 10, 10).slots == []
    picture.set_reservation("job-2", None, ())
    assert [start.id for start in picture.plan_starts(at(1), 10)] == ["job-3"]


def test_it_does_not_start_while_others_may_be_outside_memory() -> None:
    yielding = replace(job(1, 1), preemptible=True)
    picture = CalendarPicture(snapshot(nodes_of([4]), (), (yielding,), complete_types=frozenset()))
    assert picture.plan_starts(T0, 10) == []
    assert picture.common.needs_refill(1) == [("h100", (0, 1))]
    picture.common.refill("h100", (), complete=True)
    assert [start.id for start in picture.plan_starts(T0, 10)] == ["job-1"]


def test_of_a_large_pool_some_nodes_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and the first that fit are among them."""
    compared: list[set[int]] = []

    def fewest(offers: Sequence[Offer], gpus: int, nodes: int, losses: Mapping[str, int]) -> Choice | None:
        compared.append({offer.node for offer in offers})
        return fewest_lost(offers, gpus, nodes, losses)

    monkeypatch.setattr(making_room, "fewest_lost", fewest)
    nodes = nodes_of([1] * 3 * MOST_COMPARED)
    rows = [
        Commitment(f"old-{number}", gpu.id, T0 - number * LOOK, T0 + WHILE, True, preemptible=True)
        for number, gpu in enumerate(gpu for one in nodes for gpu in one.gpus)
    ]
    picture = CalendarPicture(snapshot(nodes, rows, [job(1), job(2, 1, 2)]))
    assert picture.plan_starts(T0, 10) == []
    slots = picture.plan_slots(T0, 10, 10).slots
    assert [len(slot.gpus) for slot in slots] == [1, 2]
    assert [len(some) for some in compared] == [MOST_COMPARED + 1, MOST_COMPARED + 2]
