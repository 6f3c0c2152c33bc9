"""The order of jobs by area with ageing, and by arrival."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import length_micros, to_micros
from reservation_core.domain.plan import PlanningSnapshot, Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.standings import (
    AGEING,
    BY_AREA,
    BY_ARRIVAL,
    LONGEST,
    Orders,
    orders_of,
    standing,
)
from reservation_core.domain.policy.limits import NO_POLICY, Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import QueueOrder, Scope
from tests.examples import examples
from tests.unit.reservation_core.domain.planning.worlds import T0

HOUR = length_micros(timedelta(hours=1))
NOW = to_micros(T0)


def job(seq: int, hours: float, waited: int = 0, gpus: int = 1, project: str | None = None) -> Waiting:
    length = timedelta(hours=hours)
    return Waiting(f"job-{seq}", gpus, 1, "h100", length, 0, seq, project=project, submitted_at=NOW - waited)


def in_order(jobs: list[Waiting], orders: Orders) -> list[int]:
    picture = Picture(PlanningSnapshot((), (), tuple(jobs), frozenset({"h100"})))
    picture.set_orders(orders)
    picture.catch_up(T0)
    return [waiting.seq for waiting in picture.queue.in_order()]


def test_small_jobs_go_first_and_equal_ones_in_the_order_of_arrival() -> None:
    jobs = [job(1, 8, gpus=4), job(2, 8), job(3, 1, gpus=8), job(4, 0.5)]
    assert in_order(jobs, BY_AREA) == [4, 2, 3, 1]
    assert in_order(jobs, BY_ARRIVAL) == [1, 2, 3, 4]


@examples(300)
@given(st.integers(1, 40), st.floats(0.1, 100), st.integers(0, 20 * 24), st.sampled_from((BY_AREA, BY_ARRIVAL)))
def test_nobody_is_put_off_for_longer_than_the_ageing_says(k: int, hours: float, later: int, orders: Orders) -> None:
    large = job(1, k * k * hours, waited=(k - 1) * AGEING + later * HOUR + HOUR)
    small = job(2, hours)
    assert standing(large, orders, NOW) < standing(small, orders, NOW)
    # Those that came later than it are never again ahead of it.
    assert standing(large, orders, NOW + 90 * AGEING) < standing(small, orders, NOW + 90 * AGEING)


@examples(100)
@given(st.floats(0.1, 10_000), st.floats(0.1, 10_000), st.integers(1, 48))
def test_whatever_has_waited_longest_goes_first_in_the_order_of_arrival(a: float, b: float, more: int) -> None:
    oldest, old, new = job(3, a, LONGEST + more * HOUR), job(2, b, LONGEST), job(1, 0.1, LONGEST - 1)
    assert in_order([new, old, oldest], BY_AREA) == [3, 2, 1]


def test_a_project_may_have_the_other_order() -> None:
    jobs = [job(1, 200, project="lab"), job(2, 100, project="lab"), job(3, 200), job(4, 100)]
    assert in_order(jobs, Orders(by_area=True, others=frozenset({"lab"}))) == [1, 2, 4, 3]
    assert in_order(jobs, Orders(by_area=False, others=frozenset({"lab"}))) == [3, 4, 2, 1]


def test_the_order_is_another_as_time_passes_and_jobs_are_found_in_it() -> None:
    jobs = [job(1, 16), job(2, 4, waited=-AGEING - HOUR)]
    picture = Picture(PlanningSnapshot((), (), tuple(jobs), frozenset({"h100"})))
    picture.set_orders(BY_AREA)
    picture.catch_up(T0)
    assert [waiting.seq for waiting in picture.queue.in_order()] == [2, 1]
    picture.catch_up(T0 + timedelta(microseconds=AGEING + 2 * HOUR))
    assert [waiting.seq for waiting in picture.queue.in_order()] == [1, 2]
    for waiting in jobs:
        picture.set_reservation(waiting.id, None, ())
    assert not picture.queue.jobs


def policy(**orders: QueueOrder | None) -> Policy:
    """Rules of projects; `default` are those of everybody."""
    scopes = {name: Scope() if name == "default" else Scope(project=name) for name in orders}
    return Policy(PolicyRule(scopes[name], Rules(max_gpus=8, order=order)) for name, order in orders.items())


def test_the_orders_of_a_policy_are_by_area_until_a_rule_says_otherwise() -> None:
    area, arrival = QueueOrder
    assert orders_of(NO_POLICY) == BY_AREA
    assert orders_of(policy(default=None, vision=None)) == BY_AREA
    assert orders_of(policy(default=arrival, vision=arrival)) == BY_ARRIVAL
    assert orders_of(policy(default=arrival, vision=area, tides=None)) == Orders(False, frozenset({"vision"}))
    assert orders_of(policy(vision=area, tides=arrival)) == Orders(True, frozenset({"tides"}))
    assert not orders_of(policy(tides=arrival)).is_by_area("tides")
    assert orders_of(policy(tides=arrival)).is_by_area(None)
