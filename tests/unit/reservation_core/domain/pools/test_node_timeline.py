"""The line of time of a node against the calendars of its cards, whatever is drawn."""

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.calendar import FOREVER, GpuCalendar, Row, is_free_during, node_windows
from reservation_core.domain.model import Gpu
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.pools.pool import NodeGpus
from tests.examples import ledger_examples

NOW = 1_000_000_000
STEP = 60_000_000  # what an overrun is thought to last, so that such an end may meet others

hundreds = ledger_examples(500)


@st.composite
def nodes(draw: st.DrawFn) -> NodeGpus:
    """One to four cards, some not neighbours, with ranges that may touch and, where a pod overruns, overlap."""
    indices = sorted(draw(st.sets(st.integers(0, 5), min_size=1, max_size=4)))
    calendars: dict[int, GpuCalendar] = {}
    for index in indices:
        rows: list[Row] = []
        end = NOW + draw(st.integers(-3, 3)) * STEP
        for number in range(draw(st.integers(0, 3))):
            start = end + draw(st.integers(0, 2)) * STEP
            end = start + draw(st.integers(1, 3)) * STEP
            rows.append((start, end, number == 0 and draw(st.booleans()), f"r{draw(st.integers(0, 2))}"))
        calendars[index] = GpuCalendar(rows)
    return NodeGpus(0, [Gpu(index, "n", index, "h100") for index in indices], calendars)


def free_cards(node: NodeGpus, start: int, end: int) -> int:
    return sum(card.bit for card in node.cards if is_free_during(card.calendar.busy(NOW), start, end))


@hundreds
@given(nodes(), st.integers(1, 5), st.integers(1, 6), st.integers(0, 8), st.integers(0, 3))
def test_first_windows_are_those_of_the_calendars(
    node: NodeGpus, gpus: int, length: int, later: int, passed: int
) -> None:
    timeline = Timeline(node.cards, NOW)
    expected = node_windows([card.calendar.busy(NOW) for card in node.cards], gpus, length * STEP, NOW)
    at = NOW + later * STEP
    first = next((max(first, at) for first, last in expected if last >= at), None)
    found = timeline.first_window(gpus, length * STEP, at)
    assert (None if found is None else found[0]) == first
    if found is not None:
        assert found[1] >= found[0]
        last = min(found[1], found[0] + 20 * STEP)
        assert free_cards(node, last, last + length * STEP).bit_count() >= gpus
    # As long as nothing begins or ends, what was found for one time holds for the next, too.
    edges = [edge for card in node.cards for start, end, *_ in card.calendar.rows for edge in (start, end)]
    now = min([NOW + passed * STEP // 4, *(edge - 1 for edge in edges if edge > NOW)])
    windows = timeline.windows(gpus)
    starts = [max(start, now) for start, end in windows if end - max(start, now) >= length * STEP]
    assert starts[:1] == [max(first, now) for first, last in expected if last >= now][:1]
    assert windows == sorted(windows)
    assert not windows or windows[-1][1] == FOREVER


@hundreds
@given(nodes(), st.integers(1, 4), st.integers(0, 8), st.integers(1, 6))
def test_what_is_picked_is_free_and_what_is_cut_is_not(node: NodeGpus, gpus: int, later: int, length: int) -> None:
    timeline = Timeline(node.cards, NOW)
    window = timeline.first_window(gpus, length * STEP, NOW + later * STEP)
    if window is None:
        assert gpus > len(node.cards)
        return
    start, end = window[0], window[0] + length * STEP
    mask = timeline.pick(gpus, start, end)
    assert mask.bit_count() == gpus
    assert mask & free_cards(node, start, end) == mask
    timeline.cut(mask, start, end)
    for card in node.cards:
        if card.bit & mask:
            card.calendar.add((start, end, False, "new"))
    anew = Timeline(node.cards, NOW)
    assert (timeline.times, timeline.masks) == (anew.times, anew.masks)


@hundreds
@given(nodes(), st.integers(0, 8), st.integers(1, 6))
def test_what_is_free_at_a_time_is_that_of_the_calendars(node: NodeGpus, later: int, length: int) -> None:
    timeline = Timeline(node.cards, NOW)
    start, end = NOW + later * STEP, NOW + (later + length) * STEP
    assert timeline.free_during(start, end) == free_cards(node, start, end)
    assert timeline.free_just_before(end) == free_cards(node, end - 1, end).bit_count()


@hundreds
@given(nodes(), st.integers(0, 2))
def test_a_reservation_can_be_thought_away(node: NodeGpus, number: int) -> None:
    thought_away = Timeline(node.cards, NOW, f"r{number}")
    for card in node.cards:
        card.calendar.remove(f"r{number}")
    gone = Timeline(node.cards, NOW)
    assert (thought_away.times, thought_away.masks) == (gone.times, gone.masks)


def test_cards_that_are_of_least_use_to_others_are_picked() -> None:
    calendars = {
        0: GpuCalendar(),
        1: GpuCalendar([(NOW + 5 * STEP, NOW + 9 * STEP, False, "booked")]),
        2: GpuCalendar([(NOW, NOW + 2 * STEP, True, "runs")]),
    }
    node = NodeGpus(0, [Gpu(index, "n", index, "h100") for index in range(3)], calendars)
    timeline = Timeline(node.cards, NOW)
    # Before a booking first, then where somebody has just left.
    assert timeline.pick(1, NOW + 3 * STEP, NOW + 5 * STEP) == 0b010
    assert timeline.pick(2, NOW + 3 * STEP, NOW + 5 * STEP) == 0b110
    assert timeline.pick(1, NOW + 3 * STEP, NOW + 6 * STEP) == 0b100
