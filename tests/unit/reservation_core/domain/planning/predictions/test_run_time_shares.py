"""How long jobs will run: as their owners' last ones, else as everybody's."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.planning.predictions import run_time_shares
from reservation_core.domain.planning.predictions.newest_numbers import NewestNumbers
from reservation_core.domain.planning.predictions.run_time_shares import RunTimeShares
from reservation_core.domain.planning.run_times import RunTime
from tests.examples import examples

T0 = datetime(2030, 1, 1, tzinfo=UTC)


def ended(owner: int, asked: float, ran: float, gpus: int = 1) -> RunTime:
    return RunTime(owner, gpus, 1, "h100", asked, ran, T0)


def learnt(*run_times: RunTime, allowance: timedelta = timedelta(0)) -> RunTimeShares:
    shares = RunTimeShares(allowance)
    for run_time in run_times:
        shares.learn(run_time)
    return shares


def test_the_last_two_of_the_owner_and_kind_count_first() -> None:
    others = [ended(2, 1000, 900) for _ in range(10)]
    shares = learnt(ended(1, 1000, 1000), ended(1, 1000, 100), ended(1, 1000, 300), *others)
    assert shares.predict(1, 1, 1000) == 200
    # Of another kind everybody's count, and of an owner with one job, too.
    assert shares.predict(1, 4, 1000) == 900
    assert learnt(ended(1, 1000, 100), *others).predict(1, 1, 1000) == 900


def test_nine_in_ten_run_no_longer_than_a_long_one() -> None:
    shares = learnt(*(ended(1, 1000, ran) for ran in range(10, 210, 10)))
    assert shares.predict_long(1, 1000) == 190
    assert shares.predict_long(1, 1000, ran=195) == 200
    assert shares.predict_long(1, 1000, ran=200) == 1000
    assert learnt(ended(1, 1000, 10)).predict_long(1, 1000) == 1000


def test_without_enough_jobs_the_asked_time_stands() -> None:
    assert learnt().predict(1, 1, 1000) == 1000
    assert learnt(*[ended(2, 1000, 1)] * 4).predict(1, 1, 1000) == 1000
    assert learnt(*[ended(2, 1000, 1)] * 5).predict(1, 1, 1000) == 1


def test_a_job_that_ran_longer_is_like_those_that_did() -> None:
    shares = learnt(*[ended(2, 1000, 100)] * 8, *[ended(2, 1000, 700)] * 2)
    assert shares.predict(None, 1, 1000) == 100
    assert shares.predict(None, 1, 1000, ran=400) == 700
    assert shares.predict(None, 1, 1000, ran=800) == 1000


def test_asked_times_include_the_allowance() -> None:
    shares = learnt(*[ended(2, 900, 500)] * 5, allowance=timedelta(seconds=100))
    assert shares.predict(None, 1, 1000) == 500


@examples(100)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5000), st.floats(0, 9000), st.sampled_from((1, 8))))
, st.integers(0, 3), st.floats(1, 5000), st.floats(0, 1))  # fmt: skip
def test_a_prediction_lies_between_what_has_run_and_what_was_asked(
    ends: list[tuple[int, int, float, int]], owner: int, asked: float, part: float
) -> None:
    shares = learnt(*[ended(*one) for one in ends])
    assert asked * part - 1e-6 <= shares.predict(owner, 1, asked, asked * part) <= asked + 1e-6


def test_memory_is_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(run_time_shares, "_OWNERS", 10)
    monkeypatch.setattr(run_time_shares, "_KINDS", 4)
    shares = RunTimeShares()
    for number in range(1000):
        shares.learn(ended(number, 2.0 ** (number % 20), 1))
    assert len(shares._own) == 10
    assert len(shares._kinds) == 4
    assert len(shares) == 200


def test_the_newest_numbers_replace_the_oldest() -> None:
    numbers = NewestNumbers(3)
    for number in (9, 1, 2, 3):
        numbers.add(number)
    assert [numbers.quantile(part) for part in (0, 0.5, 0.9)] == [1, 3, 3]
    assert (numbers.quantile_above(0.5, 1), numbers.quantile_above(0.5, 3)) == (3, None)
