"""CPUs and memory in plans, against an oracle that adds them up at every instant and tries every choice of GPUs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.calendar import to_moment
from reservation_core.domain.model import Node
from reservation_core.domain.plan import Commitment, PlannedSlot, Start, Waiting
from reservation_core.domain.planning.slot_decisions import earliest_slot, plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.planning.wait_estimates import estimate_waits
from reservation_core.domain.pools.waiting_reasons import Capacity
from reservation_core.domain.request_terms import Share
from reservation_core.domain.statuses import ReasonCode
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import (
    MINUTE,
    T0,
    World,
    check_start,
    choices,
    held,
    is_free,
    job,
    node,
    types_for,
    worlds,
)

ALL = 1000
several_hundred = ledger_examples(400, suppress_health_check=list(HealthCheck))

ASKED = (None, None, Share(1), Share(5), Share(None, 7), Share(3, 2), Share(9, 1), Share(12, 12))
HAVE = ((8, 8), (10, 7), (7, None), (None, 9))


@st.composite
def shared_worlds(draw: st.DrawFn) -> World:
    """A world whose nodes have CPUs and memory, of which some jobs have asked for some and others will."""
    world = draw(worlds())
    nodes = tuple(
        replace(listed_node, cpu_milli=cpu, memory_bytes=memory)
        for listed_node in world.nodes
        for cpu, memory in [draw(st.sampled_from(HAVE))]
    )
    rows: list[Commitment] = []
    for row in world.commitments:
        # A job of one GPU: the ranges of a job on one node are the same.
        share = draw(st.sampled_from(ASKED)) if row.reservation_id.startswith(("r", "b")) else None
        tries = (replace(row, share=share), row)
        rows += [new for new in tries if adds_up(nodes, [*rows, new], new.start, max(new.end, T0 + MINUTE))][:1]
    waiting = tuple(replace(waiting_job, share=draw(st.sampled_from(ASKED))) for waiting_job in world.waiting)
    return World(nodes, tuple(rows), waiting)


def taken(node_of: Node, rows: Iterable[Commitment], when: datetime, now: datetime) -> tuple[Fraction, Fraction]:
    """The CPUs and memory of a node that are taken at an instant."""
    gpus = {gpu.id for gpu in node_of.gpus}
    cpu = memory = Fraction(0)
    there = [row for row in rows if row.gpu_id in gpus and covers(row, when, now)]
    plain = {row.gpu_id for row in there if row.share is None}
    asked = {row.reservation_id: row.share for row in there if row.share is not None}
    demands = [demand(node_of, None, 1) for _ in plain]
    for owner, share in asked.items():
        demands.append(demand(node_of, share, sum(row.reservation_id == owner for row in there)))
    for more_cpu, more_memory in demands:
        cpu += more_cpu
        memory += more_memory
    return cpu, memory


def covers(row: Commitment, when: datetime, now: datetime) -> bool:
    if row.held:
        return min(row.start, now) <= when < (row.end if row.end > now else now + MINUTE)
    return row.start <= when < row.end


def demand(node_of: Node, share: Share | None, gpus: int) -> tuple[Fraction, Fraction]:
    part = Fraction(gpus, len(node_of.gpus))
    cpu, memory = share or Share()
    return (
        (node_of.cpu_milli or 0) * part if cpu is None else Fraction(cpu if node_of.cpu_milli is not None else 0),
        (node_of.memory_bytes or 0) * part
        if memory is None
        else Fraction(memory if node_of.memory_bytes is not None else 0),
    )


def adds_up(
    nodes: Sequence[Node], rows: Sequence[Commitment], start: datetime, end: datetime, now: datetime = T0
) -> bool:
    """Whether at no instant of a time more is taken of any node than it has."""
    edges = {start} | {edge for row in rows for edge in (row.start, row.end, now) if start <= edge < end}
    for node_of in nodes:
        for when in edges:
            cpu, memory = taken(node_of, rows, when, now)
            if cpu > (node_of.cpu_milli or 0) or memory > (node_of.memory_bytes or 0):
                return False
    return True


def known(node_of: Node, share: Share | None) -> bool:
    asked = share or Share()
    return (asked.cpu_milli is None or node_of.cpu_milli is not None) and (
        asked.memory_bytes is None or node_of.memory_bytes is not None
    )


def rows_for(nodes: Sequence[Node], wanted: Waiting, start: datetime) -> Iterable[list[Commitment]]:
    """Every choice of GPUs, as rows."""
    for gpu_type in types_for(nodes, wanted):
        for cards in choices(able(nodes, wanted), wanted, gpu_type):
            yield [
                Commitment(wanted.id, card.id, start, start + wanted.length, held=False, share=wanted.share)
                for card in cards
            ]


def able(nodes: Sequence[Node], wanted: Waiting) -> list[Node]:
    """The nodes that would do if they were empty."""
    return [
        node_of
        for node_of in nodes
        if known(node_of, wanted.share)
        and all(
            asked <= (has or 0)
            for asked, has in zip(
                demand(node_of, wanted.share, min(wanted.gpus, len(node_of.gpus))),
                (node_of.cpu_milli, node_of.memory_bytes),
                strict=True,
            )
        )
    ]


def fits(nodes: Sequence[Node], rows: Sequence[Commitment], wanted: Waiting, start: datetime) -> bool:
    cards = {gpu.id: gpu for node_of in nodes for gpu in node_of.gpus}
    end = start + wanted.length
    for more in rows_for(nodes, wanted, start):
        if all(is_free(cards[row.gpu_id], rows, start, end, T0) for row in more):
            on = [node_of for node_of in nodes if any(row.gpu_id == gpu.id for row in more for gpu in node_of.gpus)]
            if adds_up(on, [*rows, *more], start, end):
                return True
    return False


def earliest(nodes: Sequence[Node], rows: Sequence[Commitment], wanted: Waiting) -> datetime | None:
    ends = {T0 + MINUTE if row.held and row.end <= T0 else row.end for row in rows}
    return next((start for start in sorted({T0, *ends}) if start >= T0 and fits(nodes, rows, wanted, start)), None)


def committed(decided: Start | PlannedSlot, share: Share | None, *, is_held: bool) -> list[Commitment]:
    return [
        Commitment(decided.id, gpu.gpu_id, decided.start, decided.end, is_held, planned=not is_held, share=share)
        for gpu in decided.gpus
    ]


@several_hundred
@given(shared_worlds())
def test_the_earliest_slot_is_the_first_instant_at_which_everything_adds_up(world: World) -> None:
    picture = World(world.nodes, world.commitments, ()).state()
    for wanted in world.waiting:
        found = earliest_slot(picture, wanted, T0)
        expected = earliest(world.nodes, world.commitments, wanted)
        assert (None if found is None else to_moment(found)) == expected


@several_hundred
@given(shared_worlds())
def test_a_job_is_unplaceable_exactly_where_no_empty_nodes_have_what_it_asks_for(world: World) -> None:
    capacity = Capacity(world.nodes)
    for wanted in world.waiting:
        anywhere = replace(wanted, avoid_nodes=frozenset())
        reason = capacity.unplaceable(wanted.gpus, wanted.nodes, wanted.gpu_type, wanted.share)
        assert (reason is None) == any(True for _ in rows_for(world.nodes, anywhere, T0))


@several_hundred
@given(shared_worlds())
def test_starts_are_lawful_and_add_up(world: World) -> None:
    by_id = {waiting_job.id: waiting_job for waiting_job in world.waiting}
    rows = list(world.commitments)
    for start in plan_starts(world.state(), T0, ALL):
        wanted = by_id[start.id]
        check_start(able(world.nodes, wanted), rows, wanted, start, T0)
        rows += committed(start, wanted.share, is_held=True)
        on = {gpu.node for gpu in start.gpus}
        assert adds_up([node_of for node_of in world.nodes if node_of.name in on], rows, start.start, start.end)


def run(world: World) -> tuple[dict[str, datetime], dict[str, datetime]]:
    """Let time pass a minute at a time, with slots; answers when each job was promised to start, and when it did."""
    state = world.state()
    by_id = {waiting_job.id: waiting_job for waiting_job in world.waiting}
    ledger: dict[str, list[Commitment]] = {}
    for row in world.commitments:
        ledger.setdefault(row.reservation_id, []).append(row)
    promised: dict[str, datetime] = {}
    started: dict[str, datetime] = {}
    now = T0
    while now <= T0 + 400 * MINUTE and state.queue.jobs:
        for owner, rows in list(ledger.items()):
            left = [row for row in rows if row.end > now]
            if len(left) < len(rows) and owner not in state.ledger.slots:
                ledger[owner] = left
                state.set_reservation(owner, None, left)
        more = True
        while more:
            starts = plan_starts(state, now, ALL)
            for start in starts:
                started[start.id] = now
                ledger[start.id] = committed(start, by_id[start.id].share, is_held=True)
            slots = plan_slots(state, now, ALL, ALL)
            for slot in slots.slots:
                promised.setdefault(slot.id, slot.start)
                ledger[slot.id] = committed(slot, by_id[slot.id].share, is_held=False)
            everything = [row for rows in ledger.values() for row in rows]
            assert adds_up(world.nodes, everything, now, T0 + timedelta(days=1), now)
            more = bool(starts) or slots.more
        now += MINUTE
    return promised, started


@ledger_examples(150, suppress_health_check=list(HealthCheck))
@given(shared_worlds())
def test_whatever_happens_sums_hold_and_promises_are_kept(world: World) -> None:
    # What has ended and is still held is a guess, so nobody's promise is certain beside it.
    rows = tuple(row for row in world.commitments if row.end > T0)
    promised, started = run(World(world.nodes, rows, world.waiting))
    could = {
        waiting_job.id for waiting_job in world.waiting if any(True for _ in rows_for(world.nodes, waiting_job, T0))
    }
    assert started.keys() == could
    assert all(started[job_id] <= start for job_id, start in promised.items())


@several_hundred
@given(worlds(), st.sampled_from(HAVE))
def test_jobs_that_ask_for_nothing_are_planned_as_if_nodes_had_only_gpus(
    world: World, has: tuple[int | None, int | None]
) -> None:
    nodes = tuple(replace(node_of, cpu_milli=has[0], memory_bytes=has[1]) for node_of in world.nodes)
    bare, full = world.state(), World(nodes, world.commitments, world.waiting).state()
    assert plan_starts(full, T0, ALL) == plan_starts(bare, T0, ALL)
    assert plan_slots(full, T0, ALL, ALL) == plan_slots(bare, T0, ALL, ALL)


BIG = replace(node("n0", 4), cpu_milli=16_000, memory_bytes=64)


def test_a_job_with_most_of_the_cpus_keeps_others_waiting_until_it_ends() -> None:
    greedy = replace(held("greedy", 0, -5, 30), share=Share(13_000))
    state = World((BIG,), (greedy,), (job(1), replace(job(2), share=Share(3000)))).state()
    # The share of one GPU is 4 CPUs, and 3 are left.
    assert [start.id for start in plan_starts(state, T0, ALL)] == ["job-2"]
    [slot] = plan_slots(state, T0, ALL, ALL).slots
    assert (slot.id, slot.start) == ("job-1", T0 + 30 * MINUTE)


def test_an_ask_that_no_node_has_says_what_there_is() -> None:
    state = World((BIG,), (), (replace(job(1), share=Share(17_000)),)).state()
    assert plan_starts(state, T0, ALL) == []
    [estimate] = estimate_waits(state, T0, ALL)
    assert estimate.reason.code is ReasonCode.LARGER_THAN_ANY_NODE
    assert "17 CPUs" in estimate.reason.detail
    assert "16 CPUs" in estimate.reason.detail
