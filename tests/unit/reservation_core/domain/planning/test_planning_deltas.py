"""Whatever is told to a planner bit by bit, it decides as one that is told everything at once."""

from dataclasses import replace
from datetime import datetime
from itertools import product

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.model import GpuCondition, Node
from reservation_core.domain.plan import Commitment
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.planning.wait_estimates import estimate_waits
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import (
    MINUTE,
    T0,
    World,
    at,
    check_start,
    commitments_of,
    held,
    job,
    jobs,
    node,
    snapshot,
    worlds,
)

OPERATIONS = (
    *("arrive",) * 5,
    *("leave",) * 2,
    *("release",) * 3,
    *("shorten", "lengthen", "take", "book", "node", "card", "change", "echo"),
    *("pass_time",) * 3,
    *("plan",) * 5,
)
STEPS = tuple(product(OPERATIONS, range(12)))


class Told:
    """A planner that gets deltas, and beside it what is true, from which another can be made at any time."""

    def __init__(self, world: World) -> None:
        self.nodes = world.nodes
        self.waiting = {waiting_job.id: waiting_job for waiting_job in world.waiting}
        self.ledger: dict[str, list[Commitment]] = {}
        for row in world.commitments:
            self.ledger.setdefault(row.reservation_id, []).append(row)
        self.now: datetime = T0
        self.next_seq = 100
        self.planner = world.state()

    def afresh(self) -> Picture:
        rows = tuple(row for rows in self.ledger.values() for row in rows)
        return World(self.nodes, rows, tuple(self.waiting.values())).state()

    def tell(self, reservation_id: str) -> None:
        rows = self.ledger.get(reservation_id, [])
        self.planner.set_reservation(reservation_id, self.waiting.get(reservation_id), rows)

    def plan(self, limit: int) -> None:
        rows = [row for rows in self.ledger.values() for row in rows]
        expected = plan_starts(self.afresh(), self.now, limit)
        starts = plan_starts(self.planner, self.now, limit)
        assert starts == expected
        for start in starts:
            check_start(self.nodes, rows, self.waiting.pop(start.id), start, self.now)
            self.ledger.setdefault(start.id, []).extend(commitments_of(start))
            rows += commitments_of(start)

    def do(self, operation: str, number: int, data: st.DataObject) -> None:
        match operation:
            case "arrive":
                wanted = data.draw(jobs(self.next_seq))
                self.next_seq += 1
                self.waiting[wanted.id] = wanted
                self.tell(wanted.id)
            case "leave" | "change" if self.waiting:
                wanted = list(self.waiting.values())[number % len(self.waiting)]
                if operation == "leave":
                    del self.waiting[wanted.id]
                else:
                    self.waiting[wanted.id] = replace(wanted, priority=1 - wanted.priority, gpus=1 + number % 3)
                self.tell(wanted.id)
            case "release" | "shorten" | "lengthen" | "take" | "echo" if self.ledger:
                self._change_rows(operation, list(self.ledger)[number % len(self.ledger)])
            case "book":
                self._book(data)
            case "node":
                chosen = self.nodes[number % len(self.nodes)]
                self._set_node(chosen, replace(chosen, available=not chosen.available))
            case "card":
                chosen = self.nodes[number % len(self.nodes)]
                usable = chosen.gpus[0].condition is GpuCondition.USABLE
                first = replace(chosen.gpus[0], condition=GpuCondition.LOST if usable else GpuCondition.USABLE)
                self._set_node(chosen, replace(chosen, gpus=(first, *chosen.gpus[1:])))
            case "pass_time":
                self.now += (1 + number // 3) * MINUTE
            case "plan":
                self.plan(limit=number % 3 + 1 if number < 6 else 100)
            case _:
                pass

    def _change_rows(self, operation: str, chosen: str) -> None:
        rows = self.ledger[chosen]
        if operation == "release":
            del self.ledger[chosen]
        elif operation == "shorten":
            self.ledger[chosen] = [replace(row, end=max(row.start + MINUTE, row.end - 2 * MINUTE)) for row in rows]
        elif operation == "lengthen" and not self._others_on(chosen):
            self.ledger[chosen] = [replace(row, end=row.end + 2 * MINUTE) for row in rows]
        elif operation == "take":
            self.ledger[chosen] = [replace(row, held=not row.held and row.start <= self.now) for row in rows]
        self.tell(chosen)

    def _others_on(self, chosen: str) -> bool:
        cards = {row.gpu_id for row in self.ledger[chosen]}
        return any(row.gpu_id in cards for other, rows in self.ledger.items() if other != chosen for row in rows)

    def _book(self, data: st.DataObject) -> None:
        gpus = [gpu for listed_node in self.nodes for gpu in listed_node.gpus]
        gpu = gpus[data.draw(st.integers(0, len(gpus) - 1))]
        start = self.now + data.draw(st.integers(1, 9)) * MINUTE
        end = start + data.draw(st.integers(1, 6)) * MINUTE
        rows = [row for rows in self.ledger.values() for row in rows if row.gpu_id == gpu.id]
        if not any(row.start < end and start < row.end for row in rows):
            name = f"book-{self.next_seq}"
            self.next_seq += 1
            self.ledger[name] = [Commitment(name, gpu.id, start, end, False)]
            self.tell(name)

    def _set_node(self, before: Node, after: Node) -> None:
        self.nodes = tuple(after if listed_node is before else listed_node for listed_node in self.nodes)
        self.planner.set_nodes(self.nodes)


@ledger_examples(1000, suppress_health_check=list(HealthCheck))
@given(worlds(), st.lists(st.sampled_from(STEPS), min_size=4, max_size=25), st.data())
def test_deltas_lead_to_the_same_decisions_as_a_fresh_look(
    world: World, steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    told = Told(world)
    for operation, number in steps:
        told.do(operation, number, data)
    told.plan(100)
    told.now += MINUTE
    told.plan(100)
    assert estimate_waits(told.planner, told.now, 100) == estimate_waits(told.afresh(), told.now, 100)


def test_a_window_takes_in_nobody_from_beyond_its_end() -> None:
    line = [job(seq, minutes=5) for seq in range(1, 7)]
    state = Picture(snapshot([node("a", 1)], [], line[:2], frozenset()))
    state.set_reservation("job-6", line[5], ())
    assert [start.id for start in plan_starts(state, T0, 10)] == ["job-1"]
    assert state.needs_refill(1) == []
    assert state.needs_refill(2) == [("h100", (0, 2))]
    state.refill("h100", line[2:4], complete=False)
    assert state.needs_refill(4) == [("h100", (0, 4))]
    state.refill("h100", line[4:], complete=True)
    assert state.needs_refill(100) == []
    assert [estimate.id for estimate in estimate_waits(state, T0, 10)] == ["job-2", "job-3", "job-4", "job-5", "job-6"]


def test_nobody_passes_those_who_are_not_in_memory_yet() -> None:
    line = [job(seq, minutes=5) for seq in range(1, 5)]
    any_type = job(10, gpu_type=None)
    state = Picture(snapshot([node("a", 4)], [], [*line[:2], any_type], frozenset({None})))
    assert [start.id for start in plan_starts(state, T0, 10)] == ["job-1", "job-2"]
    state.refill("h100", line[2:], complete=True)
    assert [start.id for start in plan_starts(state, T0, 10)] == ["job-3", "job-4"]


def test_a_window_full_of_jobs_that_can_never_run_is_refilled() -> None:
    line = [*(job(seq, 8) for seq in range(1, 5)), job(5)]
    state = Picture(snapshot([node("a", 4)], [], line[:4], frozenset()))
    assert plan_starts(state, T0, 10) == []
    assert state.needs_refill(1) == [("h100", (0, 4))]
    state.refill("h100", line[4:], complete=True)
    assert [start.id for start in plan_starts(state, T0, 10)] == ["job-5"]


def test_a_refill_does_not_bring_back_who_has_started() -> None:
    state = Picture(snapshot([node("a", 2)], [], [job(1), job(2, 2)], frozenset()))
    assert [start.id for start in plan_starts(state, T0, 10)] == ["job-1"]
    state.refill("h100", [job(1), job(2, 2), job(3)], complete=True)
    assert [estimate.id for estimate in estimate_waits(state, T0, 10)] == ["job-2", "job-3"]


def test_who_just_arrived_in_one_pool_starts_in_order_with_who_was_let_in_in_another() -> None:
    nodes = (node("a", 1), node("b", 1, "a100", first_id=10))
    state = World(nodes, (held("r0", 0, -5, 60),), (job(2),)).state()
    assert plan_starts(state, T0, 10) == []
    state.set_reservation("job-1", job(1, gpu_type="a100"), ())
    state.set_reservation("r0", None, ())
    assert [start.id for start in plan_starts(state, T0, 1)] == ["job-1"]
    assert [start.id for start in plan_starts(state, T0, 1)] == ["job-2"]


def test_telling_the_same_again_changes_nothing() -> None:
    state = World((node("a", 2),), (), (job(1), job(2, 2))).state()
    (start,) = plan_starts(state, T0, 10)
    state.set_reservation("job-1", None, commitments_of(start))
    state.set_reservation("job-2", job(2, 2), ())
    state.set_nodes((node("a", 2),))
    state.set_reservation("job-9", None, ())
    assert not state.pools.dirty
    assert not state.queue.arrivals
    assert plan_starts(state, T0, 10) == []


def test_releases_in_the_order_of_the_line_whatever_was_cancelled() -> None:
    rows = [held(f"r{card}", card, -5, 60) for card in range(2)]
    state = World((node("a", 2),), tuple(rows), tuple(job(seq) for seq in range(1, 6))).state()
    assert plan_starts(state, T0, 10) == []
    state.set_reservation("job-1", None, ())
    state.set_reservation("job-3", None, ())
    state.set_reservation("r0", None, ())
    assert [start.id for start in plan_starts(state, at(1), 10)] == ["job-2"]
    state.set_reservation("r1", None, ())
    assert [start.id for start in plan_starts(state, at(2), 10)] == ["job-4"]


def test_edges_of_rows_that_went_early_do_not_pile_up() -> None:
    state = World((node("a", 1),), (), ()).state()
    for seq in range(10_000):
        state.set_reservation(f"job-{seq}", job(seq), ())
        (start,) = plan_starts(state, T0, 1)
        state.set_reservation(start.id, None, ())
    assert len(state.ledger._edges) < 5_000


def test_a_long_line_is_kept_in_order_when_its_front_leaves() -> None:
    line = [job(seq) for seq in range(5_000)]
    state = World((node("a", 1),), (held("r0", 0, -5, 60),), tuple(line)).state()
    for seq in range(3_000):
        state.set_reservation(f"job-{seq}", None, ())
    state.set_reservation("job-2000", line[2_000], ())
    assert [estimate.id for estimate in estimate_waits(state, T0, 2)] == ["job-2000", "job-3000"]
