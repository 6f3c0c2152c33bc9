"""Jobs without GPUs beside jobs with GPUs, against an oracle that adds up every instant of every node's spare."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.model import Node, Spare
from reservation_core.domain.plan import Commitment, PlannedSlot, PlanningSnapshot, Start, Waiting, by_reservation
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from reservation_core.domain.pools.cpu_places import CPU_PLACES, place_id
from reservation_core.domain.request_terms import CPU_TYPE, Share
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, World, worlds

ALL = 1000
LONGEST = 40
several_hundred = ledger_examples(200, suppress_health_check=list(HealthCheck))


@st.composite
def mixed_worlds(draw: st.DrawFn) -> tuple[World, list[Waiting]]:
    """A world whose nodes keep something, and jobs without GPUs that come at some minute after its begin."""
    world = draw(worlds())
    kept = [draw(st.sampled_from((None, (4, 4), (7, 3), (2, 9)))) for _ in world.nodes]
    nodes = tuple(
        replace(node, spare=None if spare is None else Spare(number, *spare))
        for number, (node, spare) in enumerate(zip(world.nodes, kept, strict=True), start=1)
    )
    jobs = [
        Waiting(
            f"cpu{number}",
            1,
            1,
            CPU_TYPE,
            draw(st.integers(1, 9)) * MINUTE,
            draw(st.sampled_from((0, 0, 5))),
            1000 + number,
            owner=draw(st.integers(1, 2)),
            share=Share(draw(st.integers(1, 5)), draw(st.integers(1, 5))),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return World(nodes, world.commitments, world.waiting), jobs


def picture_of(world: World, jobs: Iterable[Waiting] = ()) -> CalendarPicture:
    waiting = (*world.waiting, *jobs)
    complete = frozenset(job.gpu_type for job in waiting)
    return CalendarPicture(PlanningSnapshot(world.nodes, world.commitments, waiting, complete))


def node_of(nodes: Sequence[Node], row: Commitment) -> Node:
    return next(
        node
        for node in nodes
        if node.spare is not None and row.gpu_id in [place_id(node.spare.node_id, place) for place in range(CPU_PLACES)]
    )


def adds_up(nodes: Sequence[Node], rows: Sequence[Commitment]) -> bool:
    """Whether at no instant more is taken of any node than it keeps, and no place is given twice."""
    for when in {row.start for row in rows}:
        there = [row for row in rows if row.start <= when < row.end]
        if len({row.gpu_id for row in there}) < len(there):
            return False
        for node in nodes:
            here = [row.share for row in there if node_of(nodes, row) is node]
            spare = node.spare or Spare(0, 0, 0)
            cpu = sum(share.cpu_milli or 0 for share in here if share is not None)
            memory = sum(share.memory_bytes or 0 for share in here if share is not None)
            if cpu > spare.cpu_milli or memory > spare.memory_bytes:
                return False
    return True


def fits_now(nodes: Sequence[Node], rows: Sequence[Commitment], job: Waiting, now: datetime) -> bool:
    """Every place on every available node is tried; of those that nobody has, one."""
    used = {row.gpu_id for row in rows}
    for node in nodes:
        if node.spare is None or not node.available:
            continue
        places = [place_id(node.spare.node_id, place) for place in range(CPU_PLACES)]
        unused = [place for place in places if place not in used]
        for place in [*used.intersection(places), *unused[:1]]:
            more = Commitment(job.id, place, now, now + job.length, held=True, share=job.share)
            if adds_up([node], [row for row in rows if row.gpu_id in places] + [more]):
                return True
    return False


class History:
    """Minutes that pass, with what starts and ends in them."""

    def __init__(self, world: World, jobs: Sequence[Waiting]) -> None:
        self.world = world
        self.jobs = {job.id: job for job in (*world.waiting, *jobs)}
        self.picture = picture_of(world)
        self.rows: dict[str, list[Commitment]] = {
            owner: rows for owner, rows in by_reservation(world.commitments).items() if not rows[0].planned
        }
        self.slots: dict[str, list[Commitment]] = {}
        self.promised: dict[str, datetime] = {}
        self.started: dict[str, Start] = {}

    def come(self, job: Waiting) -> None:
        self.picture.set_reservation(job.id, job, ())

    def end(self, owner: str) -> None:
        if self.rows.pop(owner, None) is not None:
            self.picture.set_reservation(owner, None, ())

    def plan(self, now: datetime) -> None:
        """Let everything start and be promised that can be."""
        for owner, rows in list(self.rows.items()):
            if all(row.end <= now for row in rows):
                self.end(owner)
        while True:
            starts = self.picture.plan_starts(now, ALL)
            for start in starts:
                self.slots.pop(start.id, None)
                self.started[start.id] = start
                self.rows[start.id] = self.committed(start, is_held=True)
            plan = self.picture.plan_slots(now, ALL, ALL)
            for slot in plan.slots:
                self.slots[slot.id] = self.committed(slot, is_held=False)
                if slot.gpus:
                    self.promised.setdefault(slot.id, slot.start)
            if not starts and not plan.slots and not plan.more:
                return

    def committed(self, decided: Start | PlannedSlot, *, is_held: bool) -> list[Commitment]:
        share = self.jobs[decided.id].share
        return [
            Commitment(decided.id, gpu.gpu_id, decided.start, decided.end, is_held, planned=not is_held, share=share)
            for gpu in decided.gpus
        ]

    def cpu_rows(self) -> list[Commitment]:
        return [row for rows in (*self.rows.values(), *self.slots.values()) for row in rows if row.gpu_id < 0]


@several_hundred
@given(mixed_worlds(), st.data())
def test_beside_each_other(found: tuple[World, list[Waiting]], data: st.DataObject) -> None:
    world, jobs = found
    both, alone = History(world, jobs), History(world, ())
    waiting = list(jobs)
    for minute in range(LONGEST):
        now = T0 + minute * MINUTE
        while waiting and data.draw(st.booleans()):
            both.come(waiting.pop(0))
        early = sorted(owner for owner, rows in both.rows.items() if rows[0].gpu_id < 0)
        if early and data.draw(st.booleans()):
            both.end(data.draw(st.sampled_from(early)))
        both.plan(now)
        alone.plan(now)
        # Jobs with GPUs have what they would have without the others.
        assert {job_id: start for job_id, start in both.started.items() if job_id not in {j.id for j in jobs}} == (
            alone.started
        )
        assert [both.slots.get(job.id) for job in world.waiting] == [alone.slots.get(job.id) for job in world.waiting]
        rows = both.cpu_rows()
        assert adds_up(world.nodes, rows)
        for job in both.picture.cpu_jobs.queue.jobs.values():
            if job.id not in both.started:
                others = [row for row in rows if row.reservation_id != job.id]
                assert not fits_now(world.nodes, others, job, now), job
        if not (waiting or both.picture.has_waiting or alone.picture.has_waiting):
            break
    for job in jobs:
        if job.id in both.started and job.id in both.promised:
            assert both.started[job.id].start <= both.promised[job.id]
