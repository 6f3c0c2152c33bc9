"""Steps of a report are made of sums and of what no sum has: exactly, and of few hours."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.policy.usage import SumSpan, partition_steps, steps_of

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@given(
    start=st.integers(0, 100 * 1440), length=st.integers(1, 100 * 1440), step=st.integers(1, 20 * 1440),
    whole=st.sampled_from([1, 30, 60, 1440]),
)  # fmt: skip
def test_parts_of_a_step_come_to_the_step(start: int, length: int, step: int, whole: int) -> None:
    begin = BEGIN + start // whole * whole * MINUTE
    step = max(step, length // 60)
    steps = steps_of(begin, begin + length * MINUTE, step * MINUTE)
    edges, summed = partition_steps(steps)
    for number, (begins, ends) in enumerate(steps):
        # What changes at each moment: what is added and taken away comes to the step and to nothing else.
        changes: Counter[datetime] = Counter({begins: -1})
        changes[ends] += 1
        for edge in edges:
            if edge.step == number:
                changes[edge.start] += 1
                changes[edge.end] -= 1
        for part in summed:
            if part.step == number:
                changes[part.start] += part.sign
                changes[part.end] -= part.sign
        assert not any(changes.values())


@given(start=st.integers(0, 10_000), days=st.integers(1, 40), hours=st.integers(0, 23))
def test_a_long_step_reads_no_more_than_half_a_day_of_hours_at_each_end(start: int, days: int, hours: int) -> None:
    begin = BEGIN + timedelta(hours=start)
    edges, summed = partition_steps([(begin, begin + timedelta(days=days, hours=hours))])
    read = sum((part.end - part.start for part in summed if part.span is SumSpan.HOUR), timedelta(0))
    assert not edges
    assert read <= timedelta(hours=26)


def test_neighbours_share_the_hours_around_the_time_between_them() -> None:
    begin = BEGIN + timedelta(hours=5)
    _, summed = partition_steps(steps_of(begin, begin + timedelta(days=90), timedelta(days=1)))
    hours = {(part.start, part.end) for part in summed if part.span is SumSpan.HOUR}
    assert len(hours) == 91
    assert sum((end - start for start, end in hours), timedelta(0)) == 91 * timedelta(hours=5)
