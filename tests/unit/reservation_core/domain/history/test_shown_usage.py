"""Usage in tables: what is shown adds up."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.history.shown_usage import ShownUsage, shown_usage


@dataclass
class Line:
    used_gpu_hours: float
    idle_gpu_hours: float
    wasted_gpu_hours: float = 0.0


def test_parts_that_are_rounded_up_make_up_the_sum() -> None:
    shown = shown_usage([Line(0.0851, 0), Line(0.0551, 0)], Line(0.1402, 0))
    assert shown == [ShownUsage(0.09, 0.09, 0, 0), ShownUsage(0.06, 0.06, 0, 0), ShownUsage(0.15, 0.15, 0, 0)]


def test_a_total_of_lines_that_are_missing_is_its_own() -> None:
    assert shown_usage([Line(1, 1)], Line(50.004, 2.5))[-1] == ShownUsage(52.5, 50, 2.5, 0)
    assert shown_usage([], Line(0, 0)) == [ShownUsage(0, 0, 0, 0)]


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e5)), max_size=30))
def test_lines_and_columns_add_up(hours: list[tuple[float, float]]) -> None:
    total = Line(sum(used for used, _ in hours), sum(idle for _, idle in hours))
    *lines, last = shown_usage([Line(*parts) for parts in hours], total)
    for column, (of_total, exact) in enumerate(
        zip(last[1:3], (total.used_gpu_hours, total.idle_gpu_hours), strict=True), 1
    ):
        assert round(sum(line[column] for line in lines), 2) == of_total
        assert abs(of_total - exact) <= 0.005 * len(lines) + 1e-4
    assert all(round(line.used_gpu_hours + line.idle_gpu_hours, 2) == line.held_gpu_hours for line in [*lines, last])
