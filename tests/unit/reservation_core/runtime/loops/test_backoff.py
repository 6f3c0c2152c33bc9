"""Pauses grow within a bound, differ, and begin anew after success."""

from itertools import pairwise

from reservation_core.runtime.loops.backoff import Backoff


def test_pauses_double_up_to_a_bound() -> None:
    backoff = Backoff(0.5, 5)
    bounds = [0.5, 1, 2, 4, 5, 5, 5]
    assert all(bound / 2 <= backoff.next() <= bound for bound in bounds)


def test_no_two_of_many_wait_equally_long() -> None:
    pauses = sorted(Backoff(1, 10).next() for _ in range(20))
    assert all(one < other for one, other in pairwise(pauses))


def test_after_success_they_are_short_again() -> None:
    backoff = Backoff(0.5, 60)
    for _ in range(10):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 0.5


def test_the_first_is_never_longer_than_the_longest() -> None:
    assert Backoff(0.5, 0.1).next() <= 0.1
