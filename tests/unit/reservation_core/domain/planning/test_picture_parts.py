"""Each part of the planner's picture by itself."""

from dataclasses import replace

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.cards.placement_policies import PlacementPolicy
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment
from reservation_core.domain.planning.gpu_pools import GpuPools
from reservation_core.domain.planning.open_rows import Ledger
from reservation_core.domain.planning.pool_heads import PoolHeads
from reservation_core.domain.planning.waiting_queue import WaitingQueue
from reservation_core.domain.planning.walking.slot_walk import SlotWalk
from tests.unit.reservation_core.domain.planning.worlds import T0, held, job, node

NODES = (node("a", 2), node("b", 1, "a100", first_id=10))


def pools_of(*rows: Commitment, nodes: tuple[Node, ...] = NODES) -> tuple[GpuPools, Ledger]:
    ledger = Ledger(rows)
    return GpuPools(nodes, ledger, PlacementPolicy.BINPACK), ledger


def slot(seq: int, gpu_id: int, start: int, end: int) -> Commitment:
    return replace(held(f"job-{seq}", gpu_id, start, end, is_held=False), planned=True)


def ids(queue: WaitingQueue) -> list[str]:
    return [waiting.id for waiting in queue.in_order()]


def test_a_slot_is_due_from_its_start_and_its_gpus_change_at_its_edges() -> None:
    ledger = Ledger((slot(1, 0, 5, 9), held("r0", 1, -5, 5)))
    starts = ledger.slots["job-1"][0]
    assert ledger.edges_until(starts - 1) == []
    assert not ledger.due
    assert sorted(ledger.edges_until(starts)) == [0, 1]
    assert ledger.due == {"job-1"}
    ledger.replace("job-1", ())
    assert (ledger.due, ledger.slots, ledger.allocated("job-1")) == (set(), {}, ())


def test_a_queue_takes_in_no_job_from_beyond_its_end_but_one_with_a_slot() -> None:
    queue = WaitingQueue([job(1), job(3)])
    queue.add(job(5), slotted=False)
    queue.add(job(2), slotted=False)
    queue.add(job(7), slotted=True)
    assert ids(queue) == ["job-1", "job-2", "job-3", "job-7"]
    queue.refill("h100", [job(5)], complete=True)
    queue.add(job(9), slotted=False)
    assert ids(queue)[-1] == "job-9"


def test_a_job_outside_memory_may_be_ahead_of_those_behind_the_end() -> None:
    queue = WaitingQueue([job(1), job(3)])
    assert queue.may_be_next(job(3), "h100")
    assert not queue.may_be_next(job(4), "h100")
    assert queue.may_be_next(job(4), "a100")


def test_held_jobs_are_released_in_turns() -> None:
    queue = WaitingQueue([job(seq) for seq in range(1, 6)], {"h100"})
    queue.take_arrivals()
    for waiting in list(queue.jobs.values()):
        queue.hold_back(waiting)
    queue.bar(queue.jobs["job-3"])
    assert queue.of_type("h100") == []
    released = []
    for _ in range(3):
        queue.release_some(2)
        released.append([*queue.arrivals])
        queue.take_arrivals()
    assert released == [["job-1", "job-2"], ["job-4", "job-5"], []]
    assert queue.held == {"job-3"}
    queue.release_all()
    assert queue.held == queue.barred == set()


def test_a_job_that_loses_its_slot_is_considered_again() -> None:
    queue = WaitingQueue([job(1)], {"h100"})
    queue.give_slot(queue.jobs["job-1"])
    assert not queue.arrivals
    queue.take_slot(queue.jobs["job-1"])
    assert queue.take_arrivals() == {"h100"}
    assert not queue.arrivals


def test_new_pools_are_dirty_and_settle_by_type() -> None:
    pools, _ = pools_of()
    assert pools.dirty == pools.freed == {"h100", "a100"}
    pools.end_pass()
    pools.mark_changed([10, 99], freed=False)
    assert pools.dirty == {"a100"}
    assert pools.begin_pass({"t4"}, tied=False) == {"a100"}
    assert pools.begin_pass({"h100"}, tied=False) == {"a100", "h100"}
    pools.end_pass()
    pools.plan_again("t4")
    assert not pools.dirty
    pools.plan_again(None)
    assert pools.dirty == {"h100", "a100"}
    assert pools.take_freed() == {"h100", "a100"}
    assert not pools.freed


def test_a_walk_elsewhere_leaves_the_jobs_that_ask_for_something_else() -> None:
    pools, _ = pools_of()
    pools.take_freed()
    pools.note_asked(job(1))
    pools.freed = {"a100"}
    pools.take_freed()
    pools.freed = {"h100"}
    pools.take_freed()
    looked_at = [pools.earlier_places("h100", job(1).shape).may_begin(name, 1, 1, 0) for name in ("job-1", "job-2")]
    assert looked_at == [True, False]
    pools.freed = {"h100"}
    pools.take_freed()
    assert pools.earlier_places("h100", job(1).shape).may_begin("job-1", 1, 1, 0) is False


def test_only_slots_that_were_read_are_looked_at_for_unusable_gpus() -> None:
    pools, ledger = pools_of(slot(1, 0, 5, 9), slot(2, 99, 5, 9))
    assert pools.take_unusable({"job-1", "job-2"}) == ["job-2"]
    assert pools.take_unusable({"job-1", "job-2"}) == []
    ledger.replace("job-1", (slot(1, 98, 5, 9),))
    pools.doubt_slot("job-1")
    assert pools.take_unusable({"job-1"}) == ["job-1"]


def test_a_head_is_chosen_for_the_pool_where_it_starts_first_and_leaves_it_dirty() -> None:
    pools, _ = pools_of(held("r0", 0, -5, 9), held("r1", 10, -5, 7))
    pools.refresh(now := to_micros(T0))
    heads = PoolHeads(pools)
    wanted = job(1, gpu_type=None)
    heads.choose(replace(wanted, gpus=2, gpu_type="h100"), pools.for_job(job(1, 2)), now)
    assert "h100" in heads
    heads.choose(wanted, pools.for_job(wanted), now)
    assert heads.jobs.keys() == {"h100", "a100"}
    pools.end_pass()
    heads.drop(wanted)
    assert not heads.jobs
    assert pools.dirty == {"h100", "a100"}


def test_a_walk_goes_on_behind_the_last_job_and_ends_once() -> None:
    queue = WaitingQueue([job(seq) for seq in range(1, 4)], {"h100"})
    (shape_queue,) = queue.all_shapes()
    walk = SlotWalk()
    walk.begin(frozenset({"h100"}))
    assert walk.first_of(shape_queue) == 0
    walk.go_on(shape_queue.entries[1], over=False)
    assert walk.first_of(shape_queue) == 2
    walk.begin_again()
    walk.pause(shape_queue.entries[1])
    assert walk.first_of(shape_queue) == 1
    walk.go_on(None, over=False)
    assert walk.first_of(shape_queue) == 1
    walk.go_on(None, over=True)
    assert not walk.gpu_types
