"""The planner against an oracle that tries everything, on a thousand small worlds."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.calendar import length_micros, to_micros, to_moment
from reservation_core.domain.model import Gpu, Node
from reservation_core.domain.plan import Commitment, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.planning.wait_estimates import estimate_waits
from reservation_core.domain.pools.waiting_reasons import Capacity
from reservation_core.domain.statuses import ReasonCode
from tests.examples import ledger_examples
from tests.unit.reservation_core.domain.planning.worlds import (
    MINUTE,
    T0,
    World,
    at,
    check_start,
    choices,
    commitments_of,
    earliest,
    earliest_of_any,
    fits_at,
    held,
    job,
    node,
    snapshot,
    types_for,
    worlds,
)

thousand = ledger_examples(1000, suppress_health_check=list(HealthCheck))
FOREVER_LIMIT = 1000


def unplaceable(world: World, wanted: Waiting) -> bool:
    return not any(any(choices(world.nodes, wanted, gpu_type)) for gpu_type in types_for(world.nodes, wanted))


@thousand
@given(worlds())
def test_what_could_ever_run_is_what_exhaustive_search_finds(world: World) -> None:
    capacity = Capacity(world.nodes)
    for wanted in world.waiting:
        reason = capacity.unplaceable(wanted.gpus, wanted.nodes, wanted.gpu_type)
        assert (reason is not None) == unplaceable(world, wanted)
        anywhere = replace(wanted, avoid_nodes=frozenset())
        for gpu_type in types_for(world.nodes, wanted):
            assert capacity.could_run_on(gpu_type, wanted.gpus, wanted.nodes) == any(
                choices(world.nodes, anywhere, gpu_type)
            )


@thousand
@given(worlds())
def test_earliest_fit_is_the_oracles(world: World) -> None:
    state = world.state()
    state.catch_up(T0)
    for wanted in world.waiting:
        length = length_micros(wanted.length)
        for listed_type in types_for(world.nodes, wanted):
            expected = earliest(world.nodes, world.commitments, wanted, listed_type, T0)
            pool = state.pools.by_type.get(listed_type)
            if pool is None or pool not in state.pools.reach.pools_for(wanted.gpu_type, wanted.shape):
                assert expected is None
                continue
            never = state.pools.reach.avoided(pool, wanted).never
            found = pool.earliest(wanted.gpus, wanted.nodes, length, to_micros(T0), never)
            assert (None if found is None else to_moment(found)) == expected


@thousand
@given(worlds())
def test_starts_are_lawful_and_nobody_is_given_what_another_has(world: World) -> None:
    by_id = {waiting_job.id: waiting_job for waiting_job in world.waiting}
    rows = list(world.commitments)
    starts = plan_starts(world.state(), T0, FOREVER_LIMIT)
    assert len({start.id for start in starts}) == len(starts)
    for start in starts:
        check_start(world.nodes, rows, by_id[start.id], start, T0)
        rows += commitments_of(start)


@thousand
@given(worlds())
def test_backfill_never_delays_the_head_of_the_line(world: World) -> None:
    state = world.state()
    starts = plan_starts(state, T0, FOREVER_LIMIT)
    by_id = {waiting_job.id: waiting_job for waiting_job in world.waiting}
    left = sorted(
        (waiting_job for waiting_job in world.waiting if waiting_job.id in state.queue.jobs),
        key=lambda waiting_job: waiting_job.key,
    )
    left = [waiting_job for waiting_job in left if not unplaceable(world, waiting_job)]
    after = [*world.commitments, *(row for start in starts for row in commitments_of(start))]

    def before(head: Waiting) -> list[Commitment]:
        fair = [start for start in starts if by_id[start.id].key < head.key]
        return [*world.commitments, *(row for start in fair for row in commitments_of(start))]

    # Worked out from the line alone: whoever is the first that could not start.
    for head in left[:1]:
        assert earliest_of_any(world.nodes, after, head, T0) == earliest_of_any(world.nodes, before(head), head, T0)
    if all(waiting_job.gpu_type is not None for waiting_job in left):
        for gpu_type in {waiting_job.gpu_type for waiting_job in left if waiting_job.gpu_type}:
            head = next(waiting_job for waiting_job in left if waiting_job.gpu_type == gpu_type)
            assert state.heads.jobs[gpu_type] == head
    # And for every head that the planner has.
    for gpu_type, its in state.heads.jobs.items():
        expected = earliest(world.nodes, before(its), its, gpu_type, T0)
        assert earliest(world.nodes, after, its, gpu_type, T0) == expected
        assert expected is not None
        assert expected > T0


@thousand
@given(worlds())
def test_nobody_is_left_who_may_start(world: World) -> None:
    state = world.state()
    starts = plan_starts(state, T0, FOREVER_LIMIT)
    assert plan_starts(state, T0, FOREVER_LIMIT) == []
    rows = [*world.commitments, *(row for start in starts for row in commitments_of(start))]
    for wanted in state.queue.jobs.values():
        for gpu_type in types_for(world.nodes, wanted):
            head = state.heads.jobs.get(gpu_type)
            if head is None or head == wanted:
                assert not fits_at(world.nodes, rows, wanted, gpu_type, T0, T0)
                continue
            if unplaceable(world, wanted) or not any(choices(world.nodes, wanted, gpu_type)):
                continue
            if wanted.gpu_type is not None:
                assert head.key < wanted.key
            pool = state.pools.by_type[gpu_type]
            shadow = state.heads.shadow(pool, to_micros(T0))
            assert shadow is not None
            start = to_moment(shadow.start)
            promised = [
                Commitment("shadow", card.placed.gpu_id, start, start + head.length, False)
                for position, mask in shadow.cards.items()
                for card in pool.nodes[position].cards
                if card.bit & mask
            ]
            assert len(promised) == head.gpus * head.nodes
            assert not fits_at(world.nodes, [*rows, *promised], wanted, gpu_type, T0, T0)


@thousand
@given(worlds())
def test_estimates_are_possible_in_order_and_exact_for_the_first(world: World) -> None:
    state = world.state()
    plan_starts(state, T0, FOREVER_LIMIT)
    rows = [row for _ in state.pools.by_type.values() for row in _rows_of(state)]
    estimates = estimate_waits(state, T0, FOREVER_LIMIT)
    line = sorted(state.queue.jobs.values(), key=lambda listed_job: listed_job.key)
    assert [estimate.id for estimate in estimates] == [listed_job.id for listed_job in line]
    types = [job.gpu_type for job in line]
    assert [estimate.position for estimate in estimates] == [
        types[: n + 1].count(gpu_type) for n, gpu_type in enumerate(types)
    ]
    latest: dict[tuple[object, ...], datetime] = {}
    first = True
    for wanted, estimate in zip(line, estimates, strict=True):
        expected = earliest_of_any(world.nodes, rows, wanted, T0)
        if expected is None:
            assert unplaceable(world, wanted)
            assert estimate.estimated_start_at is None
            assert estimate.reason.code not in (ReasonCode.WAITING_FOR_GPUS, ReasonCode.BEHIND_IN_LINE)
            continue
        assert estimate.estimated_start_at is not None
        assert estimate.estimated_start_at >= expected
        assert estimate.reason.code in (ReasonCode.WAITING_FOR_GPUS, ReasonCode.BEHIND_IN_LINE)
        if first:
            assert estimate.estimated_start_at == expected
            assert estimate.reason.code is ReasonCode.WAITING_FOR_GPUS
            first = False
        alike = (wanted.shape, wanted.gpu_type, wanted.length)
        assert estimate.estimated_start_at >= latest.get(alike, T0)
        latest[alike] = estimate.estimated_start_at


def _rows_of(state: Picture) -> list[Commitment]:
    return [
        Commitment(reservation_id, gpu_id, to_moment(start), to_moment(end), is_held)
        for reservation_id, rows in state.ledger.by_reservation.items()
        for gpu_id, (start, end, is_held, _) in rows
    ]


def run_to_the_end(
    world: World, state: Picture, until: timedelta, *, overrun: timedelta = timedelta(0)
) -> dict[str, datetime]:
    """Let everything run for its full length, a minute at a time; answers when each job started.

    What overruns at T0 goes so much later, and before anybody is started at that time. The first job in the queue is
    asked every minute when it will start: it never starts after what it was told, once no overrun is left that lasts
    longer than was thought.
    """
    by_id = {waiting_job.id: waiting_job for waiting_job in world.waiting}
    started: dict[str, datetime] = {}
    latest: dict[str, datetime] = {}
    ledger: dict[str, list[Commitment]] = {}
    for row in world.commitments:
        ledger.setdefault(row.reservation_id, []).append(row)
    now = T0
    while now <= T0 + until and state.queue.jobs:
        for reservation_id, rows in list(ledger.items()):
            left = [row for row in rows if max(row.end, T0 + overrun * row.held) > now]
            if len(left) < len(rows):
                ledger[reservation_id] = left
                state.set_reservation(reservation_id, None, left)
        while starts := plan_starts(state, now, 2):
            for start in starts:
                rows = [row for rows in ledger.values() for row in rows]
                check_start(world.nodes, rows, by_id[start.id], start, now)
                assert now <= latest.get(start.id, now)
                started[start.id] = now
                ledger[start.id] = commitments_of(start)
                state.set_reservation(start.id, None, ledger[start.id])
            for gpu_type, after in state.needs_refill(2):
                _refill(world, state, gpu_type, after, set(started))
        for gpu_type, after in state.needs_refill(2):
            _refill(world, state, gpu_type, after, set(started))
        if not state.pools.dirty:
            if now + MINUTE >= T0 + overrun:
                estimates = estimate_waits(state, now, FOREVER_LIMIT)
                told = [(estimate.id, when) for estimate in estimates if (when := estimate.estimated_start_at)]
                latest.update({first: min(when, latest.get(first, when)) for first, when in told[:1]})
            now += MINUTE
    return started


def _refill(world: World, state: Picture, gpu_type: str | None, after: tuple[int, int] | None, gone: set[str]) -> None:
    rest = sorted(
        (
            waiting_job
            for waiting_job in world.waiting
            if waiting_job.gpu_type == gpu_type and (after is None or waiting_job.key > after)
        ),
        key=lambda waiting_job: waiting_job.key,
    )
    state.refill(
        gpu_type, [waiting_job for waiting_job in rest[:2] if waiting_job.id not in gone], complete=len(rest) <= 2
    )


def check_the_first_is_told_the_latest(world: World, limit: int, overrun: timedelta, anew: bool) -> None:
    """Start who may at T0, tell the rest, and let time pass: with the same planner, or one that was told `anew`.

    An estimate counts for the world it was made in, with those starts made. It is a promise to the first in line as
    long as nothing lasts longer than was thought, and whatever ends earlier; how long an overrun lasts is a guess.
    """
    state = world.state()
    rows = list(world.commitments)
    at_once: set[str] = set()
    while starts := plan_starts(state, T0, limit):
        at_once |= {start.id for start in starts}
        rows += [row for start in starts for row in commitments_of(start)]
    told = [
        estimate for estimate in estimate_waits(state, T0, FOREVER_LIMIT) if estimate.estimated_start_at is not None
    ]
    left = World(
        world.nodes, tuple(rows), tuple(waiting_job for waiting_job in world.waiting if waiting_job.id not in at_once)
    )
    started = run_to_the_end(left, left.state() if anew else state, timedelta(minutes=300), overrun=overrun)
    assert not started.keys() & at_once
    assert started.keys() | at_once == {
        waiting_job.id for waiting_job in world.waiting if not unplaceable(world, waiting_job)
    }
    if told and overrun <= MINUTE:
        assert told[0].estimated_start_at is not None
        assert started[told[0].id] <= told[0].estimated_start_at


@ledger_examples(300, suppress_health_check=list(HealthCheck))
@given(worlds(), st.sampled_from((FOREVER_LIMIT, 2)), st.sampled_from((0, 1, 3)), st.booleans())
def test_everybody_starts_in_the_end_and_the_first_in_line_not_after_its_estimate(
    world: World, limit: int, overrun: int, anew: bool
) -> None:
    check_the_first_is_told_the_latest(world, limit, overrun * MINUTE, anew)


# Card 5 overruns. Were it free at T0, others would start on other cards, and job-5 a minute later than it is told.
OVERRUN_FREED_AT_ONCE = World(
    (
        Node("n0", (Gpu(1, "n0", 0, "a100"), Gpu(2, "n0", 1, "a100"), Gpu(3, "n0", 2, "h100"))),
        node("n1", 1, first_id=4),
        node("n2", 2, "a100", first_id=5),
    ),
    (
        held("over", 5, -1, 0),
        held("booked-1", 1, 1, 2, is_held=False),
        held("booked-6", 6, 1, 2, is_held=False),
    ),
    (
        job(1, minutes=1, gpu_type=None),
        job(2, 1, 2, minutes=2, gpu_type=None),
        job(3, minutes=1, gpu_type=None),
        job(4, minutes=1, gpu_type=None),
        job(5, minutes=1, gpu_type="a100"),
    ),
)


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("overrun", [0, 1, 3])
def test_an_overrun_that_ends_puts_off_nobody_who_was_told(overrun: int, anew: bool) -> None:
    check_the_first_is_told_the_latest(OVERRUN_FREED_AT_ONCE, FOREVER_LIMIT, overrun * MINUTE, anew)


def test_who_is_told_what_depends_on_which_overruns_have_ended_by_the_time_of_the_starts() -> None:
    world = OVERRUN_FREED_AT_ONCE
    state = world.state()
    assert len(plan_starts(state, T0, FOREVER_LIMIT)) == 4
    assert [(estimate.id, estimate.estimated_start_at) for estimate in estimate_waits(state, T0, 10)] == [
        ("job-5", at(1))
    ]
    ended = World(world.nodes, world.commitments[1:], world.waiting).state()
    assert len(plan_starts(ended, T0, FOREVER_LIMIT)) == 4
    assert [(estimate.id, estimate.estimated_start_at) for estimate in estimate_waits(ended, T0, 10)] == [
        ("job-5", at(2))
    ]


@ledger_examples(300, suppress_health_check=list(HealthCheck))
@given(worlds(types=("h100",)), st.integers(1, 15))
def test_single_gpu_jobs_start_exactly_when_they_were_told(world: World, minutes: int) -> None:
    alike = tuple(
        Waiting(waiting_job.id, 1, 1, waiting_job.gpu_type, minutes * MINUTE, 0, waiting_job.seq)
        for waiting_job in world.waiting
    )
    # With bookings on the calendar equal starts on different cards are not equally good for those behind.
    rows = tuple(row for row in world.commitments if row.start <= T0 < row.end)
    world = World(world.nodes, rows, alike)
    told = {estimate.id: estimate.estimated_start_at for estimate in estimate_waits(world.state(), T0, FOREVER_LIMIT)}
    started = run_to_the_end(world, world.state(), timedelta(minutes=150))
    assert {key: value for key, value in told.items() if value is not None} == started


@ledger_examples(300, suppress_health_check=list(HealthCheck))
@given(worlds())
def test_a_window_on_the_line_loses_nobody(world: World) -> None:
    seen: dict[str | None, int] = {}
    window = []
    for other_waiting_job in sorted(world.waiting, key=lambda waiting_job: waiting_job.key):
        seen[other_waiting_job.gpu_type] = seen.get(other_waiting_job.gpu_type, 0) + 1
        if seen[other_waiting_job.gpu_type] <= 2:
            window.append(other_waiting_job)
    complete = frozenset(gpu_type for gpu_type, count in seen.items() if count <= 2)
    state = Picture(snapshot(world.nodes, world.commitments, window, complete))
    started = run_to_the_end(world, state, timedelta(minutes=300))
    assert started.keys() == {waiting_job.id for waiting_job in world.waiting if not unplaceable(world, waiting_job)}
