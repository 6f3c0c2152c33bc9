"""A freed place that others took meanwhile is none; another one still is."""

import pytest

from reservation_core.domain.calendar import length_micros, to_micros
from reservation_core.domain.plan import Commitment, Shape
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.pools.freed_time import EarlierPlaces
from tests.unit.reservation_core.domain.planning.worlds import MINUTE, T0, at, held, job, node, snapshot


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
        places = EarlierPlaces(pools.freed_time, Shape(1, 1), lambda _: ("", (0, 0, False, ""), {}))
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
    places = EarlierPlaces(pools.freed_time, Shape(1, 1), lambda _: ("", (0, 0, False, ""), {}))
    assert places.read(now, lambda: False)
    picture.set_reservation("r0", None, ())
    assert places.may_begin("job-1", 1, now + 1, now) is None
    assert places.read(now, lambda: False)
    assert places.may_begin("job-1", 1, now + 1, now)


def _gang_places(picture: Picture) -> EarlierPlaces:
    """Where jobs of two nodes may find earlier places, after all that was given back was read."""
    places = EarlierPlaces(picture.pools.freed_time, Shape(1, 2), picture.pools.slot_of)
    assert places.read(picture.at, lambda: False)
    return places


@pytest.mark.parametrize(("released", "may_begin"), [(("r0",), False), (("r0", "r1"), True), (("r0", "b1"), True)])
def test_a_gang_is_looked_at_where_enough_of_its_nodes_may_begin_earlier(
    released: tuple[str, ...], *, may_begin: bool
) -> None:
    nodes = [node(name, 1, first_id=number) for number, name in enumerate("abc")]
    slot = [Commitment("job-1", gpu, at(60), at(100), False, planned=True) for gpu in (1, 2)]
    rows = [held("r0", 0, -5, 120), held("r1", 1, -5, 45), held("b1", 1, 45, 60, is_held=False), held("r2", 2, -5, 60)]
    picture = Picture(snapshot(nodes, [*rows, *slot], [job(1, 1, 2, minutes=40)]))
    picture.catch_up(T0)
    picture.pools.take_freed()
    picture.pools.take_freed()
    for reservation in released:
        picture.set_reservation(reservation, None, ())
    picture.catch_up(T0)
    assert picture.pools.profiles["h100"].learn(1, picture.at)
    answer = _gang_places(picture).may_begin("job-1", length_micros(40 * MINUTE), to_micros(at(60)), picture.at)
    assert answer is may_begin


def test_only_slots_before_which_gpus_are_free_are_beside_what_was_given_back() -> None:
    rows = [held("r0", 0, -5, 30), held("r1", 1, -5, 120)]
    slots = {"job-1": (0, 40), "job-2": (0, 50), "job-3": (1, 120)}
    for job_id, (gpu, start) in slots.items():
        rows.append(Commitment(job_id, gpu, at(start), at(start + 10), False, planned=True))
    picture = Picture(snapshot([node("a", 2)], rows, [job(seq) for seq in (1, 2, 3)]))
    picture.catch_up(T0)
    picture.pools.take_freed()
    picture.pools.take_freed()
    picture.set_reservation("r0", None, ())
    _gang_places(picture)
    assert picture.pools.freed_time["h100"].beside == {"job-1", "job-3"}
