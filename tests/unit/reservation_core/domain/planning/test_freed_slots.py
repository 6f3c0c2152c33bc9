"""A walk passes over jobs that can't have an earlier slot: what it decides is what looking at all of them decides."""

from dataclasses import replace
from datetime import datetime

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reservation_core.domain.calendar import to_moment
from reservation_core.domain.plan import Commitment
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.slot_decisions import plan_slots
from reservation_core.domain.planning.start_decisions import plan_starts
from tests.examples import examples
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, World, worlds

ALL = 1000

thousand = examples(1000, suppress_health_check=list(HealthCheck))


def decided(state: Picture, now: datetime, *, of_all: bool) -> list[object]:
    """All that is decided at one time; `of_all`: with a look at every job."""
    decisions: list[object] = []
    for _ in range(ALL):
        decisions += plan_starts(state, now, ALL)
        for freed_time in state.pools.freed_time.values() if of_all else ():
            freed_time.add_all()
        plan = plan_slots(state, now, ALL, ALL)
        decisions += plan.slots
        if not plan.more:
            return decisions
    raise AssertionError("there is no end to it")


@thousand
@given(worlds(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=6))
def test_jobs_passed_over_could_not_have_had_an_earlier_slot(world: World, events: list[tuple[int, int, bool]]) -> None:
    some, every = world.state(), world.state()
    now = T0
    assert decided(some, now, of_all=False) == decided(every, now, of_all=True)
    for number, minutes, shortened in events:
        now += minutes * MINUTE
        ids = sorted(some.queue.slotted if shortened else some.ledger.by_reservation.keys() - some.ledger.slots.keys())
        for state in (some, every) if ids else ():
            chosen = ids[number % len(ids)]
            if shortened:
                # A waiting job asks for less, and keeps its slot.
                slot = [
                    Commitment(chosen, gpu_id, to_moment(start), to_moment(end), False, planned=True)
                    for gpu_id, (start, end, _, _) in state.ledger.by_reservation[chosen]
                ]
                state.set_reservation(chosen, replace(state.queue.jobs[chosen], length=MINUTE), slot)
            else:
                state.set_reservation(chosen, None, ())
        assert decided(some, now, of_all=False) == decided(every, now, of_all=True)
