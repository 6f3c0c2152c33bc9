"""CPUs and memory of jobs in a booking, against an oracle that adds them up and tries every choice of GPUs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.model import Gpu, Node
from reservation_core.domain.plan import Commitment, PlannedSlot, PlanningSnapshot, Start, Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.pools.booked_shares import beyond_share
from reservation_core.domain.request_terms import Resources, Share
from reservation_core.domain.statuses import ReasonCode
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, at, job

ALL = 1000
BOOKING = "bkg-1"
HAVE = ((8, 8), (12, 7), (7, None), (None, 9), (3, 16))
ASKED = (None, Share(1), Share(4), Share(None, 4), Share(3, 2), Share(8), Share(6, 6), Share(12, 1))


@dataclass(frozen=True)
class Booked:
    """A booking of some GPUs, what runs in it with what it asks for, and the jobs that wait in it."""

    nodes: tuple[Node, ...]
    start: int
    end: int
    gpus: tuple[int, ...]
    running: tuple[Commitment, ...]
    waiting: tuple[Waiting, ...]

    def picture(self) -> CalendarPicture:
        booked = [Commitment(BOOKING, gpu, at(self.start), at(self.end), False) for gpu in self.gpus]
        # In the ledger, rows within a booking have no amounts: the booking has the share of its GPUs.
        rows = (*booked, *(replace(row, share=None) for row in self.running))
        types = frozenset({None, "h100"})
        return CalendarPicture(PlanningSnapshot(self.nodes, rows, self.waiting, types))


@st.composite
def bookings(draw: st.DrawFn, most_waiting: int = 3) -> Booked:
    nodes: list[Node] = []
    for name in ("n0", "n1", "n2")[: draw(st.integers(1, 3))]:
        first = sum(len(listed_node.gpus) for listed_node in nodes)
        cpu, memory = draw(st.sampled_from(HAVE))
        gpus = tuple(Gpu(first + index, name, index, "h100") for index in range(draw(st.integers(1, 4))))
        nodes.append(Node(name, gpus, True, cpu_milli=cpu, memory_bytes=memory))
    every = [gpu for node in nodes for gpu in node.gpus]
    booked = [gpu.id for gpu in every if draw(st.integers(0, 3))] or [every[0].id]
    start = draw(st.sampled_from((-5, -5, 0, 7)))
    end = draw(st.sampled_from((9, 20, 30)))
    running = []
    for gpu in [gpu for gpu in every if gpu.id in booked] if start <= 0 else ():
        if draw(st.integers(0, 2)) == 0:
            share = draw(st.sampled_from(ASKED))
            node = next(node for node in nodes if node.name == gpu.node)
            share = share if large_enough(node, share, 1) else None
            until = at(min(end, draw(st.integers(1, 12))))
            running.append(Commitment(f"r{gpu.id}", gpu.id, at(start), until, True, booking_id=BOOKING, share=share))
    waiting = tuple(
        replace(
            job(seq, draw(st.integers(1, 2)), draw(st.integers(1, 2)), minutes=draw(st.sampled_from((3, 10, 40)))),
            booking_id=BOOKING,
            share=draw(st.sampled_from(ASKED)),
        )
        for seq in range(1, 1 + draw(st.integers(1, most_waiting)))
    )
    return Booked(tuple(nodes), start, end, tuple(booked), tuple(running), waiting)


def large_enough(node: Node, share: Share | None, gpus: int) -> bool:
    """Whether a job's own GPUs are as much of a node as it asks for."""
    return all(
        asked is None or (has is not None and asked <= Fraction(has * gpus, len(node.gpus)))
        for asked, has in zip(share or Share(), (node.cpu_milli, node.memory_bytes), strict=True)
    )


def is_free(rows: Iterable[Commitment], gpu: int, start: datetime, end: datetime) -> bool:
    return not any(row.gpu_id == gpu and row.start < end and row.end > start for row in rows)


def earliest(world: Booked, rows: Sequence[Commitment], wanted: Waiting) -> datetime | None:
    """The first instant at which some choice of the booking's GPUs is free for a job, by trying all."""
    over = at(world.end)
    for start in sorted({T0, at(world.start), *(row.end for row in rows)}):
        end = min(start + wanted.length, over)
        if not max(T0, at(world.start)) <= start < over:
            continue
        sets = []
        for node in world.nodes:
            free = [gpu.id for gpu in node.gpus if gpu.id in world.gpus and is_free(rows, gpu.id, start, end)]
            if large_enough(node, wanted.share, wanted.gpus):
                sets.append(list(combinations(free, wanted.gpus)))
        if any(any(True for _ in product(*chosen)) for chosen in combinations(sets, wanted.nodes)):
            return start
    return None


def decided(world: Booked) -> list[Start | PlannedSlot]:
    """What the planner decides at once, the last word on each job."""
    picture = world.picture()
    found: dict[str, Start | PlannedSlot] = {}
    more = True
    while more:
        starts = picture.plan_starts(T0, ALL)
        slots = picture.plan_slots(T0, ALL, ALL)
        found |= {decision.id: decision for decision in (*starts, *slots.slots)}
        more = bool(starts) or slots.more
    return list(found.values())


@ledger_examples(400)
@given(bookings(most_waiting=1))
def test_a_job_gets_the_first_gpus_of_its_booking_that_are_as_much_as_it_asks_for(world: Booked) -> None:
    [wanted] = world.waiting
    expected = earliest(world, world.running, wanted)
    found = decided(world)
    assert [decision.start for decision in found] == ([] if expected is None else [expected])


@ledger_examples(400)
@given(bookings())
def test_jobs_in_a_booking_never_have_more_of_a_node_than_the_booking(world: Booked) -> None:
    by_id = {waiting_job.id: waiting_job for waiting_job in world.waiting}
    rows = list(world.running)
    for decision in decided(world):
        wanted = by_id[decision.id]
        for node in world.nodes:
            own = [gpu for gpu in decision.gpus if gpu.node == node.name]
            assert not own or large_enough(node, wanted.share, len(own))
        rows += [
            Commitment(decision.id, gpu.gpu_id, decision.start, decision.end, False, share=wanted.share)
            for gpu in decision.gpus
        ]
    assert {row.gpu_id for row in rows} <= set(world.gpus)
    for node in world.nodes:
        here = {gpu.id for gpu in node.gpus}
        booked = len(here.intersection(world.gpus))
        for instant in {row.start for row in rows}:
            there = [row for row in rows if row.gpu_id in here and row.start <= instant < row.end]
            assert len({row.gpu_id for row in there}) == len(there)
            for field, has in enumerate((node.cpu_milli, node.memory_bytes)):
                asked = {row.reservation_id: (row.share or Share())[field] or 0 for row in there}
                assert sum(asked.values()) <= Fraction((has or 0) * booked, len(node.gpus))


@ledger_examples(400)
@given(bookings())
def test_a_refusal_names_exactly_what_does_not_fit_everywhere(world: Booked) -> None:
    """`least_share_in_booking` answers the least of these whole numbers, 0 where a node reports nothing."""
    for wanted in world.waiting:
        able = [node for node in world.nodes if sum(gpu.id in world.gpus for gpu in node.gpus) >= wanted.gpus]
        if able and wanted.share is not None:
            least = Share(
                min((node.cpu_milli or 0) * wanted.gpus // len(node.gpus) for node in able),
                min((node.memory_bytes or 0) * wanted.gpus // len(node.gpus) for node in able),
            )
            cpus, memory = wanted.share
            named = {name for name, _ in beyond_share(BOOKING, wanted.gpus, Resources(wanted.share), least)}
            assert named == {
                name
                for name, share in (("cpus", Share(cpus)), ("memory", Share(None, memory)))
                if not all(large_enough(node, share, wanted.gpus) for node in able)
            }


def two_nodes(cpus: int, others: int) -> tuple[Node, Node]:
    first, second = (tuple(Gpu(2 * n + i, f"n{n}", i, "h100") for i in range(2)) for n in range(2))
    return Node("n0", first, True, cpu_milli=cpus), Node("n1", second, True, cpu_milli=others)


def slot_on(gpu: int) -> Commitment:
    return Commitment("job-1", gpu, at(7), at(17), False, planned=True, booking_id=BOOKING)


def test_a_slot_on_a_node_that_became_too_small_moves_to_another() -> None:
    wanted = replace(job(1), booking_id=BOOKING, share=Share(8))
    world = Booked(two_nodes(15, 16), 7, 30, (0, 1, 2, 3), (slot_on(0),), (wanted,))
    [slot] = decided(world)
    assert (slot.start, {gpu.node for gpu in slot.gpus}) == (at(7), {"n1"})


def test_a_job_that_no_node_of_its_booking_is_large_enough_for_any_more_says_so() -> None:
    wanted = replace(job(1), booking_id=BOOKING, share=Share(8))
    world = Booked(two_nodes(15, 15), 7, 30, (0, 1, 2, 3), (slot_on(0),), (wanted, replace(job(2), booking_id=BOOKING)))
    picture = world.picture()
    assert picture.plan_starts(T0, ALL) == []
    left, other = sorted(picture.plan_slots(T0, ALL, ALL).slots, key=lambda slot: slot.id)
    assert (left.id, left.gpus, other.id) == ("job-1", (), "job-2")
    assert left.because is not None
    told, waits = sorted(picture.estimate_waits(T0, ALL), key=lambda estimate: estimate.id)
    assert (told.reason.code, told.estimated_start_at) == (ReasonCode.LARGER_THAN_ANY_NODE, None)
    assert "available" in told.reason.detail
    assert (told.position, waits.position) == (2, 1)
    assert waits.estimated_start_at == at(7)


def test_a_start_in_place_of_a_former_slot_takes_the_slot_away() -> None:
    wanted = replace(job(1), booking_id=BOOKING, share=Share(8))
    planned = replace(slot_on(0), start=T0 + MINUTE)
    world = Booked(two_nodes(15, 16), -5, 30, (0, 1, 2, 3), (planned,), (wanted,))
    [start] = world.picture().plan_starts(T0, ALL)
    assert (start.had_slot, {gpu.node for gpu in start.gpus}) == (True, {"n1"})
