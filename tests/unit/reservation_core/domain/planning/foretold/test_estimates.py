"""What a job is told first about its start is what the planner then does, on any calendar that keeps its word.

The calendar keeps its word where everything lasts as long as it was said to, nobody cancels, and nobody of a higher
priority comes later: then a job starts when it was told, to the cycle. What ends early or late is in `test_promises`.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, Waiting
from reservation_core.domain.planning.calendar_planning import CalendarPicture
from tests.examples import examples
from tests.unit.reservation_core.domain.planning.worlds import (
    MINUTE,
    T0,
    TYPES,
    World,
    check_start,
    commitments_of,
    held,
    job,
    node,
    snapshot,
)

MANY = 1000
# Much has to come together for a job to wait: what is drawn one by one is mostly little.
CHANCES = st.integers(0, 2**32).map(Random)
often = examples(500, suppress_health_check=list(HealthCheck))


def nodes_by(chance: Random) -> tuple[Node, ...]:
    """One to four nodes of one to four cards, of one type or two."""
    types = chance.choice((TYPES, TYPES[:1]))
    return tuple(
        node(f"n{number}", chance.randint(1, 4), chance.choice(types), first_id=10 * number)
        for number in range(chance.randint(1, 4))
    )


def calendar_by(chance: Random, nodes: tuple[Node, ...]) -> list[Commitment]:
    """What runs, what is booked (now, soon, days ahead), and maintenance of whole nodes."""
    rows = []
    for listed_node in nodes:
        maintenance = chance.choice((None, None, chance.randint(0, 40)))
        for gpu in listed_node.gpus:
            edge = 0
            if chance.random() < 0.5:
                edge = chance.randint(0, 30)
                rows.append(held(f"job-r{gpu.id % 5}", gpu.id, edge - 40, edge))
            if maintenance is not None:
                edge = max(edge, maintenance) + 5
                rows.append(held(f"mnt-{listed_node.name}", gpu.id, edge - 5, edge, is_held=False))
            for number in range(chance.randint(0, 3)):
                start = edge + chance.choice((0, 0, 2, 5, 10, 300))
                edge = start + chance.choice((1, 5, 30, 200))
                rows.append(held(f"bkg-{gpu.id}-{number}", gpu.id, start, edge, is_held=False))
    return rows


def job_by(chance: Random, seq: int) -> Waiting:
    """A job small enough to fit often; now and then a gang."""
    return job(
        seq,
        chance.choice((1, 1, 2, 3)),
        chance.choice((1, 1, 1, 2)),
        minutes=chance.choice((1, 4, 10, 60)),
        gpu_type=chance.choice((None, *TYPES, TYPES[0])),
        priority=chance.choice((0, 0, 0, 1)),
    )


class Life:
    """A planner, and a world that does what the calendar says; time goes from one edge of the calendar to the next."""

    def __init__(self, world: World, arrivals: dict[str, datetime]) -> None:
        self.nodes = world.nodes
        self.by_id = {job.id: job for job in world.waiting}
        self.to_come = sorted(world.waiting, key=lambda job: (arrivals[job.id], job.seq))
        self.arrivals = arrivals
        self.rows: dict[str, list[Commitment]] = {}
        for row in world.commitments:
            # A pod that should have ended is thought to go on for a minute; here it does.
            end = max(row.end, T0 + MINUTE) if row.held else row.end
            self.rows.setdefault(row.reservation_id, []).append(replace(row, end=end))
        self.slots: dict[str, datetime] = {}
        self.told: dict[str, datetime | None] = {}
        self.started: dict[str, datetime] = {}
        self.now = T0
        rows = [row for its in self.rows.values() for row in its]
        self.planner = CalendarPicture(snapshot(world.nodes, rows, ()))

    def run(self, until: datetime) -> None:
        """Everything up to this time."""
        while self.now <= until:
            self._let_end()
            while self.to_come and self.arrivals[self.to_come[0].id] <= self.now:
                job = self.to_come.pop(0)
                self.planner.set_reservation(job.id, job, ())
            self._cycle()
            edges = [edge for its in self.rows.values() for row in its for edge in (row.start, row.end)]
            edges += [*self.slots.values(), *(self.arrivals[job.id] for job in self.to_come)]
            following = [edge for edge in edges if edge > self.now]
            if not following:
                return
            self.now = min(following)

    def _let_end(self) -> None:
        for reservation_id, rows in list(self.rows.items()):
            left = [row for row in rows if row.end > self.now]
            if len(left) < len(rows):
                self.rows[reservation_id] = left
                self.planner.set_reservation(reservation_id, None, left)

    def _cycle(self) -> None:
        """As `usecases.planning.planner` does it: starts, slots, what all are told."""
        while starts := self.planner.plan_starts(self.now, MANY):
            for start in starts:
                rows = [row for its in self.rows.values() for row in its]
                check_start(self.nodes, rows, self.by_id[start.id], start, self.now)
                self.rows[start.id] = commitments_of(start)
                self.planner.set_reservation(start.id, None, self.rows[start.id])
                self.slots.pop(start.id, None)
                self.started[start.id] = self.now
        more = True
        while more:
            plan = self.planner.plan_slots(self.now, MANY, MANY)
            self.slots.update({slot.id: slot.start for slot in plan.slots})
            more = plan.more
        for estimate in self.planner.estimate_waits(self.now, MANY):
            assert estimate.position >= 1
            self.told.setdefault(estimate.id, estimate.estimated_start_at)


@often
@given(CHANCES)
def test_what_a_job_is_told_first_is_when_it_starts(chance: Random) -> None:
    nodes = nodes_by(chance)
    jobs = [job_by(chance, seq) for seq in range(1, chance.randint(2, 10))]
    arrivals = {job.id: T0 + chance.choice((0, 0, 1, 3, 12)) * MINUTE for job in jobs}
    life = Life(World(nodes, tuple(calendar_by(chance, nodes)), tuple(jobs)), arrivals)
    life.run(T0 + timedelta(hours=24))
    for job_id, told in life.told.items():
        assert life.started.get(job_id) == told, job_id
    # Those told nothing started with the first look.
    for job_id, started in life.started.items():
        assert job_id in life.told or started == arrivals[job_id]
