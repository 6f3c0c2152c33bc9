"""Meters against an oracle that tries every half hour, while things are added and removed."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import length_micros, to_micros
from reservation_core.domain.policy.quota_meters import Amount, AtOnce, InWeeks, Meter
from reservation_core.domain.policy.quota_windows import Held, gpu_time, peak, peak_start, week_start, weeks_of
from tests.examples import examples
from tests.unit.reservation_core.domain.planning.worlds import T0

HALF = timedelta(minutes=30)
HOUR = 2 * HALF
WEEK = timedelta(days=7)
FIRST = week_start(T0)

AMOUNTS = st.tuples(st.integers(1, 2), st.integers(0, 60), st.integers(1, 30), st.integers(0, 12))
"""GPUs, start in hours, length in hours, and whose place (if it is small) is given back before."""
QUESTIONS = st.tuples(st.integers(1, 2), st.integers(1, 12), st.integers(0, 120), st.integers(0, 6))
"""GPUs, length in hours, from when on in half hours, and the limit."""


def amount(held: Held) -> Amount:
    return Amount(held.gpus, to_micros(held.start), to_micros(held.end))


def at_once(held: list[Held], start: int) -> int:
    return peak(held, FIRST + start * HALF, FIRST + start * HALF + timedelta(microseconds=1))


def tried(meter: Meter, held: list[Held], question: tuple[int, int, int, int], unit: timedelta) -> None:
    """What the meter answers is what comes out by trying; `unit` is that of the limit, nothing for GPUs."""
    gpus, hours, since, limit = question
    length = hours * HOUR
    found = meter.earliest(
        gpus, length_micros(length), to_micros(FIRST + since * HALF), limit * (length_micros(unit) or 1)
    )
    expected = None
    since_when = FIRST + since * HALF
    last = max([since_when, *(holding.end for holding in held)]) + (2 * WEEK if unit else timedelta(0))
    # Weeks are alike but near their ends.
    starts = [since_when + number * HALF for number in range((last - since_when) // HALF + 1)]
    starts = [
        start
        for start in starts
        if not unit or start == since_when or week_start(start + 13 * HOUR) != week_start(start - HALF)
    ]
    for start in starts:
        asked = Held(gpus, start, start + length)
        if unit:
            fits = all(
                gpu_time([*held, asked], week, week + WEEK) <= limit * unit for week in weeks_of(start, start + length)
            )
        else:
            fits = peak(held, start, start + length) + gpus <= limit
        if fits:
            expected = to_micros(start)
            break
    assert found == expected


def tried_over(meter: InWeeks, held: list[Held], question: tuple[int, int, int, int]) -> None:
    """The week that is named is the first that is broken, with what lies in it."""
    gpus, hours, since, limit = question
    start, length = FIRST + since * HALF, hours * HOUR
    asked = [Held(gpus, start, start + length)]
    over = [
        (to_micros(week), length_micros(gpu_time(asked, week, week + WEEK)), length_micros(used))
        for week in weeks_of(start, start + length)
        if (used := gpu_time(held, week, week + WEEK)) + gpu_time(asked, week, week + WEEK) > limit * HOUR
    ]
    if over:
        found = meter.first_over(gpus, length_micros(length), to_micros(start), limit * length_micros(HOUR))
        assert found == over[0]


def played(
    meter: Meter,
    spread: int,
    amounts: list[tuple[int, int, int, int]],
    asked: list[tuple[int, int, int, int]],
    unit: timedelta,
) -> None:
    held: dict[int, Held] = {}
    for number, (gpus, first, hours, back) in enumerate(amounts):
        if back in held:
            meter.remove(amount(held.pop(back)))
        start = FIRST + first * spread * HOUR
        held[number] = Held(gpus, start, start + hours * HOUR)
        meter.add(amount(held[number]))
        for question in asked:
            tried(meter, list(held.values()), question, unit)
    everything = list(held.values())
    if isinstance(meter, InWeeks):
        for question in asked:
            tried_over(meter, everything, question)
    else:
        for number in range(0, 200, 7):
            since, until = FIRST + number * HALF, FIRST + (number + 5) * HALF
            expected = peak(everything, since, until)
            at = peak_start(everything, since, until) if expected else since
            assert meter.most(to_micros(since), to_micros(until)) == (expected, to_micros(at))
    for held_rows in held.values():
        meter.remove(amount(held_rows))
    tried(meter, [], (1, 1, 0, 1), unit)


@examples(200)
@given(st.lists(AMOUNTS, max_size=8), st.lists(QUESTIONS, max_size=2))
def test_so_many_more_at_once_from_when_on(
    amounts: list[tuple[int, int, int, int]], asked: list[tuple[int, int, int, int]]
) -> None:
    played(AtOnce(), 1, amounts, asked, timedelta(0))


@examples(100)
@given(st.lists(AMOUNTS, max_size=6), st.lists(QUESTIONS, max_size=2))
def test_so_much_more_in_a_week_from_when_on(
    amounts: list[tuple[int, int, int, int]], asked: list[tuple[int, int, int, int]]
) -> None:
    played(InWeeks(), 7, amounts, [(gpus, hours, 10 * since, 5 * limit) for gpus, hours, since, limit in asked], HOUR)
