"""Usage in tables: totals are true, and what is shown adds up."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.history.shown_usage import ShownUsage, shown_usage

HOUR = 3600


@dataclass
class Line:
    used_gpu_s: float
    idle_gpu_s: float = 0.0
    wasted_gpu_s: float = 0.0


def test_lines_with_the_largest_remainders_are_rounded_up() -> None:
    lines, total = [Line(0.0855 * HOUR), Line(0.0552 * HOUR)], Line(0.1407 * HOUR)
    assert [one.used_gpu_hours for one in shown_usage(lines, total)] == [0.09, 0.05, 0.14]


def test_a_total_of_many_small_lines_is_theirs() -> None:
    *lines, total = shown_usage([Line(0.004 * HOUR)] * 1000, Line(4 * HOUR))
    assert total == ShownUsage(4, 4, 0, 0)
    assert sorted(line.used_gpu_hours for line in lines) == [0] * 600 + [0.01] * 400


def test_a_total_of_lines_that_are_missing_is_its_own() -> None:
    *lines, total = shown_usage([Line(HOUR)] * 50, Line(50.4 * HOUR, 2.5 * HOUR))
    assert total == ShownUsage(52.9, 50.4, 2.5, 0)
    assert set(lines) == {ShownUsage(1, 1, 0, 0)}
    assert shown_usage([], Line(0)) == [ShownUsage(0, 0, 0, 0)]


@given(st.lists(st.tuples(*[st.integers(0, 10**12)] * 3), max_size=30))
def test_lines_and_columns_add_up(parts: list[tuple[int, int, int]]) -> None:
    exact = [*parts, tuple(map(sum, zip(*parts, strict=True))) or (0, 0, 0)]
    *lines, total = shown = [
        [round(100 * hours) for hours in line]
        for line in shown_usage(
            [Line(*(part / 10**6 for part in line)) for line in exact[:-1]], Line(*(part / 10**6 for part in exact[-1]))
        )
    ]
    assert [sum(line[column] for line in lines) for column in range(4)] == total
    assert all(held == used + idle for held, used, idle, _ in shown)
    assert total[1:] == [round(part / 36 / 10**6) for part in exact[-1]]
    assert all(
        abs(hundredths - part / 36 / 10**6) < 1
        for line, of_line in zip(lines, parts, strict=True)
        for hundredths, part in zip(line[1:], of_line, strict=True)
    )
