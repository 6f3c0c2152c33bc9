"""A freed place that others took meanwhile is none; another one still is."""

import pytest

from reservation_core.domain.calendar import length_micros, to_micros
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.pools.freed_time import EarlierPlaces
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, at, held, node, snapshot


@pytest.mark.parametrize("taken", [(0, 1), (1, 0)])
def test_a_place_that_was_taken_meanwhile_is_not_looked_for_again(taken: tuple[int, int]) -> None:
    nodes = [node("a", 1), node("b", 1, first_id=1)]
    picture = Picture(snapshot(nodes, [held("r0", 0, -5, 60), held("r1", 1, -5, 60)], ()))
    picture.catch_up(T0)
    pools = picture.pools
    pools.take_freed()
    for running in ("r0", "r1"):
        picture.set_reservation(running, None, ())
    pools.take_freed()
    assert pools.freed_time["h100"].everywhere == (False, False)

    def may_begin() -> bool:
        places = EarlierPlaces(pools.freed_time, 1, lambda _: ("", (0, 0, False, ""), {}))
        for _ in range(2):  # a place that was taken has them read once more
            assert places.read(to_micros(T0), lambda: False)
            answer = places.may_begin("job-1", length_micros(10 * MINUTE), to_micros(at(60)), to_micros(T0))
            if answer is not None:
                return answer
        raise AssertionError("it was read just now")

    assert may_begin()
    for gpu, is_left in zip(taken, (True, False), strict=True):
        picture.set_reservation(f"new{gpu}", None, [held(f"new{gpu}", gpu, 0, 60)])
        assert may_begin() is is_left


def test_what_is_given_back_after_all_was_read_is_read_before_it_is_asked_for() -> None:
    picture = Picture(snapshot([node("a", 1)], [held("r0", 0, -5, 60)], ()))
    picture.catch_up(T0)
    pools, now = picture.pools, to_micros(T0)
    for _ in range(2):
        pools.take_freed()
    places = EarlierPlaces(pools.freed_time, 1, lambda _: ("", (0, 0, False, ""), {}))
    assert places.read(now, lambda: False)
    picture.set_reservation("r0", None, ())
    assert places.may_begin("job-1", 1, now + 1, now) is None
    assert places.read(now, lambda: False)
    assert places.may_begin("job-1", 1, now + 1, now)
