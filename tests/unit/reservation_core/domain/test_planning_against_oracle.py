"""The planner against an oracle that tries everything, on a thousand small worlds."""

from datetime import datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reservation_core.domain.calendar import earliest_fit, length_micros, to_micros, to_moment
from reservation_core.domain.model import ReasonCode
from reservation_core.domain.plan import Commitment, Waiting
from reservation_core.domain.policy import PlanningState
from reservation_core.domain.reasons import Capacity
from tests.unit.reservation_core.domain.worlds import (
    MINUTE,
    T0,
    World,
    check_start,
    choices,
    commitments_of,
    earliest,
    earliest_of_any,
    fits_at,
    types_for,
    worlds,
)

thousand = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
FOREVER_LIMIT = 1000


def unplaceable(world: World, wanted: Waiting) -> bool:
    return not any(any(choices(world.nodes, wanted, each)) for each in types_for(world.nodes, wanted))


@thousand
@given(worlds())
def test_what_could_ever_run_is_what_exhaustive_search_finds(world: World) -> None:
    capacity = Capacity(world.nodes)
    for wanted in world.waiting:
        reason = capacity.unplaceable(wanted.gpus, wanted.nodes, wanted.gpu_type)
        assert (reason is not None) == unplaceable(world, wanted)
        for each in types_for(world.nodes, wanted):
            assert capacity.could_run_on(each, wanted.gpus, wanted.nodes) == any(choices(world.nodes, wanted, each))


@thousand
@given(worlds())
def test_earliest_fit_is_the_oracles(world: World) -> None:
    state = world.state()
    state._catch_up(T0)
    for wanted in world.waiting:
        length = length_micros(wanted.length)
        for each in types_for(world.nodes, wanted):
            expected = earliest(world.nodes, world.commitments, wanted, each, T0)
            pool = state._pools.get(each)
            if pool is None:
                assert expected is None
                continue
            found = pool.earliest(wanted.gpus, wanted.nodes, length, to_micros(T0))
            assert (None if found is None else to_moment(found)) == expected
            calendars = [[card.calendar for card in node.cards] for node in pool.nodes]
            fit = earliest_fit(calendars, wanted.gpus, wanted.nodes, length, to_micros(T0))
            assert (None if fit is None else to_moment(fit[0])) == expected
            if fit is not None:
                assert len(fit[1]) >= wanted.nodes
                assert all(len(free) >= wanted.gpus for _, free in fit[1])


@thousand
@given(worlds())
def test_starts_are_lawful_and_nobody_is_given_what_another_has(world: World) -> None:
    by_id = {each.id: each for each in world.waiting}
    rows = list(world.commitments)
    starts = world.state().plan_starts(T0, FOREVER_LIMIT)
    assert len({start.id for start in starts}) == len(starts)
    for start in starts:
        check_start(world.nodes, rows, by_id[start.id], start, T0)
        rows += commitments_of(start)


@thousand
@given(worlds())
def test_backfill_never_delays_the_head_of_the_line(world: World) -> None:
    state = world.state()
    starts = state.plan_starts(T0, FOREVER_LIMIT)
    by_id = {each.id: each for each in world.waiting}
    left = sorted((each for each in world.waiting if each.id in state._line.jobs), key=lambda each: each.key)
    left = [each for each in left if not unplaceable(world, each)]
    after = [*world.commitments, *(row for start in starts for row in commitments_of(start))]

    def before(head: Waiting) -> list[Commitment]:
        fair = [start for start in starts if by_id[start.id].key < head.key]
        return [*world.commitments, *(row for start in fair for row in commitments_of(start))]

    # Worked out from the line alone: whoever is the first that could not start.
    for head in left[:1]:
        assert earliest_of_any(world.nodes, after, head, T0) == earliest_of_any(world.nodes, before(head), head, T0)
    if all(each.gpu_type is not None for each in left):
        for gpu_type in {each.gpu_type for each in left if each.gpu_type}:
            head = next(each for each in left if each.gpu_type == gpu_type)
            assert state._heads[gpu_type].job == head
    # And for every head that the planner has.
    for gpu_type, its in state._heads.items():
        expected = earliest(world.nodes, before(its.job), its.job, gpu_type, T0)
        assert earliest(world.nodes, after, its.job, gpu_type, T0) == expected
        assert expected is not None
        assert expected > T0


@thousand
@given(worlds())
def test_nobody_is_left_who_may_start(world: World) -> None:
    state = world.state()
    starts = state.plan_starts(T0, FOREVER_LIMIT)
    assert state.plan_starts(T0, FOREVER_LIMIT) == []
    rows = [*world.commitments, *(row for start in starts for row in commitments_of(start))]
    for wanted in state._line.jobs.values():
        for each in types_for(world.nodes, wanted):
            head = state._heads.get(each)
            if head is None or head.job == wanted:
                assert not fits_at(world.nodes, rows, wanted, each, T0, T0)
                continue
            if unplaceable(world, wanted) or not any(choices(world.nodes, wanted, each)):
                continue
            if wanted.gpu_type is not None:
                assert head.job.key < wanted.key
            pool = state._pools[each]
            shadow = state._shadow(pool, to_micros(T0))
            assert shadow is not None
            start = to_moment(shadow.start)
            promised = [
                Commitment("shadow", card.placed.gpu_id, start, start + head.job.length, False)
                for position, mask in shadow.cards.items()
                for card in pool.nodes[position].cards
                if card.bit & mask
            ]
            assert len(promised) == head.job.gpus * head.job.nodes
            assert not fits_at(world.nodes, [*rows, *promised], wanted, each, T0, T0)


@thousand
@given(worlds())
def test_estimates_are_possible_in_order_and_exact_for_the_first(world: World) -> None:
    state = world.state()
    state.plan_starts(T0, FOREVER_LIMIT)
    rows = [row for each in state._pools.values() for row in _rows_of(state)]
    estimates = state.estimates(T0, FOREVER_LIMIT)
    line = sorted(state._line.jobs.values(), key=lambda each: each.key)
    assert [each.id for each in estimates] == [each.id for each in line]
    types = [job.gpu_type for job in line]
    assert [each.position for each in estimates] == [types[: n + 1].count(each) for n, each in enumerate(types)]
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
        alike = (wanted.gpus, wanted.nodes, wanted.gpu_type, wanted.length)
        assert estimate.estimated_start_at >= latest.get(alike, T0)
        latest[alike] = estimate.estimated_start_at


def _rows_of(state: PlanningState) -> list[Commitment]:
    return [
        Commitment(reservation_id, gpu_id, to_moment(start), to_moment(end), is_held)
        for reservation_id, rows in state._ledger.by_reservation.items()
        for gpu_id, (start, end, is_held, _) in rows
    ]


def run_to_the_end(world: World, state: PlanningState, until: timedelta) -> dict[str, datetime]:
    """Let everything run for its full length, a minute at a time; answers when each job started."""
    by_id = {each.id: each for each in world.waiting}
    started: dict[str, datetime] = {}
    ledger: dict[str, list[Commitment]] = {}
    for row in world.commitments:
        ledger.setdefault(row.reservation_id, []).append(row)
    now = T0
    while now <= T0 + until:
        for reservation_id, rows in list(ledger.items()):
            left = [row for row in rows if row.end > now]
            if len(left) < len(rows):
                ledger[reservation_id] = left
                state.set_reservation(reservation_id, None, left)
        while starts := state.plan_starts(now, 2):
            for start in starts:
                rows = [row for each in ledger.values() for row in each]
                check_start(world.nodes, rows, by_id[start.id], start, now)
                started[start.id] = now
                ledger[start.id] = commitments_of(start)
                state.set_reservation(start.id, None, ledger[start.id])
            for gpu_type, after in state.needs_refill(2):
                _refill(world, state, gpu_type, after, set(started))
        for gpu_type, after in state.needs_refill(2):
            _refill(world, state, gpu_type, after, set(started))
        if not state._dirty:
            now += MINUTE
    return started


def _refill(
    world: World, state: PlanningState, gpu_type: str | None, after: tuple[int, int] | None, gone: set[str]
) -> None:
    rest = sorted(
        (each for each in world.waiting if each.gpu_type == gpu_type and (after is None or each.key > after)),
        key=lambda each: each.key,
    )
    state.refill(gpu_type, [each for each in rest[:2] if each.id not in gone], complete=len(rest) <= 2)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds())
def test_everybody_starts_in_the_end_and_the_first_in_line_not_after_its_estimate(world: World) -> None:
    state = world.state()
    at_once = {start.id: start for start in state.plan_starts(T0, FOREVER_LIMIT)}
    estimates = [each for each in state.estimates(T0, FOREVER_LIMIT) if each.estimated_start_at is not None]
    started = run_to_the_end(world, world.state(), timedelta(minutes=300))
    assert started.keys() | at_once.keys() == {each.id for each in world.waiting if not unplaceable(world, each)}
    for estimate in estimates[:1]:
        assert estimate.estimated_start_at is not None
        assert started[estimate.id] <= estimate.estimated_start_at


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(types=("h100",)), st.integers(1, 15))
def test_single_gpu_jobs_start_exactly_when_they_were_told(world: World, minutes: int) -> None:
    alike = tuple(Waiting(each.id, 1, 1, each.gpu_type, minutes * MINUTE, 0, each.seq) for each in world.waiting)
    # With bookings on the calendar equal starts on different cards are not equally good for those behind.
    rows = tuple(row for row in world.commitments if row.start <= T0 < row.end)
    world = World(world.nodes, rows, alike)
    told = {each.id: each.estimated_start_at for each in world.state().estimates(T0, FOREVER_LIMIT)}
    started = run_to_the_end(world, world.state(), timedelta(minutes=150))
    assert {key: value for key, value in told.items() if value is not None} == started


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds())
def test_a_window_on_the_line_loses_nobody(world: World) -> None:
    seen: dict[str | None, int] = {}
    window = []
    for each in sorted(world.waiting, key=lambda each: each.key):
        seen[each.gpu_type] = seen.get(each.gpu_type, 0) + 1
        if seen[each.gpu_type] <= 2:
            window.append(each)
    complete = frozenset(gpu_type for gpu_type, count in seen.items() if count <= 2)
    state = PlanningState(world.nodes, world.commitments, window, complete)
    started = run_to_the_end(world, state, timedelta(minutes=300))
    assert started.keys() == {each.id for each in world.waiting if not unplaceable(world, each)}
