"""Where columns go: within the drawing, in order, and as high as what they say."""

from hypothesis import given
from hypothesis import strategies as st

from api_service.web.plots import WIDTH, column_plot, shares

STEPS = st.lists(
    st.tuples(st.floats(0, 1e9, allow_nan=False), st.floats(0, 1.5)).map(
        lambda drawn_pair: (drawn_pair[0], drawn_pair[0] * drawn_pair[1])
    ),
    max_size=400,
)


@given(STEPS)
def test_columns_are_within_the_drawing_and_in_proportion(steps: list[tuple[float, float]]) -> None:
    held, used = [step[0] for step in steps], [step[1] for step in steps]
    plot = column_plot(held, used, [None] * len(held), [str(number) for number in range(len(steps))])
    end = 0.0
    for column in plot.columns:
        assert end <= column.x
        end = column.x + column.width
        assert end <= WIDTH + 0.01
        assert 0 <= column.held_y <= column.used_y <= plot.base  # used within held, whatever is said
    tallest = max(held, default=0.0)
    for column, value in zip(plot.columns, held, strict=True):
        if tallest >= 0.08:
            highest = min(listed_column.held_y for listed_column in plot.columns)
            assert abs((plot.base - column.held_y) * tallest - (plot.base - highest) * value) <= 0.02 * tallest
            assert plot.base - highest >= (plot.base - plot.ticks[-1].at) * 0.49  # the room is used


def test_ticks_divide_well_and_labels_don_t_crowd() -> None:
    plot = column_plot([0.0, 3.2, 7.9], [0.0, 1.0, 7.9], [None, 0.5, 9.0], ["a", "b", "c"])
    assert [tick.words for tick in plot.ticks] == ["0", "2", "4", "6", "8"]
    assert [label.words for label in plot.labels] == ["a", "b", "c"]
    assert plot.columns[2].words == "c: 7.9 GPU-hours held, 7.9 used, 9 busy"
    assert [column.words for column in plot.columns[:2]] == [
        "a: 0 GPU-hours held, 0 used",
        "b: 3.2 GPU-hours held, 1 used, 0.5 busy",
    ]
    assert [column.busy_y for column in plot.columns][::2] == [None, plot.columns[2].used_y]  # never more than used
    assert len(column_plot([1.0] * 365, [0.0] * 365, [None] * 365, ["x"] * 365).labels) <= 10
    assert column_plot([], [], [], []).columns == []


def test_bars_are_shares_of_the_longest() -> None:
    assert shares([0, 5, 10, 20], 10) == [0, 50, 100, 100]
    assert shares([1.0], 0) == [0.0]
