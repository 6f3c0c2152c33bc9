"""The rows that show why a job waits: they show exactly what the ledger holds, minute by minute, and stay few."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from api_service.web.calendar.timeline_entries import SeenEntry
from api_service.web.calendar.timeline_rows import By, rows_of
from api_service.web.jobs.waiting_rows import (
    MOST_ROWS,
    Bar,
    BarKind,
    at_most_bars,
    bars_of_gpu,
    choose_rows,
    draw_row,
)
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.calendar import Range, to_micros
from reservation_core.domain.statuses import ReservationKind
from reservation_core.ports.bookings.bookings import CalendarEntry

NOW = datetime(2030, 3, 4, 10, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WINDOW = 120
START, END = to_micros(NOW), to_micros(NOW + WINDOW * MINUTE)
LONGER = 60


@dataclass(frozen=True)
class Held:
    """A reservation's minutes [start, end) after `NOW` on some GPUs."""

    id: str
    start: int
    end: int
    gpus: frozenset[int]
    kind: ReservationKind = ReservationKind.JOB

    def covers(self, gpu: int, minute: int) -> bool:
        return gpu in self.gpus and self.start <= minute < self.end


def micros(minute: int) -> int:
    return to_micros(NOW + minute * MINUTE)


def seen(held: Held, *, mine: bool = False) -> SeenEntry:
    span = Span(NOW + held.start * MINUTE, NOW + held.end * MINUTE)
    entry = CalendarEntry(
        held.id, held.kind, "running", False, 2, "bob", None, len(held.gpus), 1, span, None, tuple(sorted(held.gpus))
    )
    return SeenEntry(entry, (), held.id, held.id, mine, None, False, False)


def cards_of(ledger: Sequence[Held], gpus: int, nodes: int = 1, *, available: bool = True) -> list[BookableGpu]:
    """The GPUs as the calendar reads them."""
    return [
        BookableGpu(
            gpu,
            f"node-{gpu % nodes:03}",
            gpu // nodes,
            "h100",
            available,
            tuple(sorted((micros(held.start), micros(held.end)) for held in ledger if gpu in held.gpus)),
        )
        for gpu in range(gpus)
    ]


@st.composite
def ledgers(draw: st.DrawFn, gpus: int) -> list[Held]:
    """Reservations that never have a GPU at the same time; some began before now, some end after the window."""
    free_from = [-30] * gpus
    ledger = []
    for number in range(draw(st.integers(0, 12))):
        taken = draw(st.frozensets(st.integers(0, gpus - 1), min_size=1))
        start = max(free_from[gpu] for gpu in taken) + draw(st.integers(0, 25))
        end = start + draw(st.integers(1, 60))
        kind = draw(st.sampled_from(list(ReservationKind)))
        ledger.append(Held(f"r-{number}", start, end, taken, kind))
        for gpu in taken:
            free_from[gpu] = end
    return ledger


def at_minute(bars: Sequence[Bar], minute: int) -> list[Bar]:
    return [bar for bar in bars if bar.start <= micros(minute) < bar.end]


@given(ledgers(3))
def test_a_gpus_row_has_at_each_minute_what_the_ledger_holds(ledger: list[Held]) -> None:
    for card in cards_of(ledger, 3):
        bars = bars_of_gpu(card, [seen(held) for held in ledger], START, END)
        for minute in range(WINDOW):
            holders = [held.id for held in ledger if held.covers(card.gpu_id, minute)]
            assert [bar.label for bar in at_minute(bars, minute)] == holders
        assert all(START <= bar.start < bar.end <= END for bar in bars)
        ends = {held.id: micros(held.end) for held in ledger}
        assert all(bar.until == ends[bar.label] for bar in bars)


@given(ledgers(4), st.integers(0, 4))
def test_a_nodes_row_counts_at_each_minute_the_free_gpus(ledger: list[Held], known: int) -> None:
    [row] = rows_of(cards_of(ledger, 4), By.NODE)
    drawn = draw_row(row, By.NODE, [seen(held) for held in ledger[:known]], {}, START, END)
    for minute in range(WINDOW):
        free = sum(not any(held.covers(gpu, minute) for held in ledger) for gpu in range(4))
        [run] = [run for run in drawn.counts if run.start <= micros(minute) < run.end]
        assert run.least <= free <= run.most
        assert run.least == run.most or len(drawn.counts) > 5
    assert {bar.label for bar in drawn.holders} == {held.id for held in ledger[:known]}


@given(ledgers(2), st.data())
def test_what_nobody_is_known_to_have_is_drawn_as_taken(ledger: list[Held], data: st.DataObject) -> None:
    known = [held for held in ledger if data.draw(st.booleans())]
    [card, _] = cards_of(ledger, 2)
    bars = bars_of_gpu(card, [seen(held) for held in known], START, END)
    for minute in range(WINDOW):
        labels = [held.id if held in known else "taken" for held in ledger if held.covers(0, minute)]
        assert [bar.label for bar in at_minute(bars, minute)] == labels


def test_a_gpu_that_takes_nothing_new_is_out_of_use_between_what_it_has() -> None:
    ledger = [Held("r-1", -5, 30, frozenset({0}))]
    [card] = cards_of(ledger, 1, available=False)
    first, second = bars_of_gpu(card, [seen(ledger[0], mine=True)], START, END)
    assert (first.kind, first.start, first.end) == (BarKind.MINE, START, micros(30))
    assert (second.kind, second.start, second.end, second.until) == (BarKind.OUT, micros(30), END, None)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=200))
def test_many_bars_become_few_and_hide_only_small_gaps(steps: list[tuple[int, int]]) -> None:
    at, bars = 0, []
    for gap, length in steps:
        bars.append(Bar(at + gap, at + gap + length, at + gap + length, BarKind.JOB, "r", "r"))
        at += gap + length
    drawn = at_most_bars(bars, max(at, 1))
    assert len(drawn) <= 24
    if len(bars) <= 24:
        assert drawn == bars
    for minute in range(at):
        taken = any(bar.start <= minute < bar.end for bar in bars)
        assert any(bar.start <= minute < bar.end for bar in drawn) or not taken
    for before, after in pairwise(bars):
        if after.start - before.end > max(at, 1) // 23:
            assert not any(bar.start < after.start and bar.end > before.end for bar in drawn if bar not in bars)


def test_a_gap_that_can_be_seen_stays_one() -> None:
    """Thirty short bars, and one that begins 60 of 1,000 parts later: gaps of up to 43 are hidden."""
    bars = [Bar(at, at + 1, at + 1, BarKind.JOB, "r", "r") for at in range(0, 60, 2)]
    last = Bar(119, 1000, 1000, BarKind.JOB, "r", "r")
    assert [(bar.start, bar.end) for bar in at_most_bars([*bars, last], 1000)] == [(0, 59), (119, 1000)]


def test_bars_that_are_one_say_what_they_are_and_keep_its_colour() -> None:
    def drawn(*kinds: BarKind) -> Bar:
        bars = [Bar(2 * at, 2 * at + 1, 1, kinds[at % len(kinds)], "r", "r", planned=True) for at in range(30)]
        [one] = at_most_bars(bars, 10_000)
        return one

    assert (drawn(BarKind.JOB).label, drawn(BarKind.JOB).kind) == ("30 jobs", BarKind.JOB)
    assert drawn(BarKind.JOB).planned
    assert drawn(BarKind.BOOKING).label == "30 bookings"
    both = drawn(BarKind.JOB, BarKind.BOOKING)
    assert (both.label, both.kind) == ("30 jobs and bookings", BarKind.TAKEN)
    assert "jobs and bookings, close to each other" in both.words


def test_few_gpus_have_a_row_each_and_many_a_row_for_each_node() -> None:
    few = choose_rows(cards_of([], 16), {}, 1, 1, START)
    assert (few.by, len(few.rows), few.left_out) == (By.CARD, 16, 0)
    nodes = choose_rows(cards_of([], 17, nodes=2), {}, 1, 1, START)
    assert (nodes.by, len(nodes.rows), nodes.left_out) == (By.NODE, 2, 0)


def test_of_many_nodes_those_of_the_slot_are_shown_and_then_those_that_fit_the_earliest() -> None:
    """Node 5 has the slot; nodes 10 to 24 are free at minute 10, all others at minute 90."""
    nodes = 30
    ledger = [Held(f"r-{gpu}", -5, 10 if 10 <= gpu % nodes < 25 else 90, frozenset({gpu})) for gpu in range(4 * nodes)]
    chosen = choose_rows(cards_of(ledger, 4 * nodes, nodes=nodes), {5}, 4, micros(LONGER) - START, START)
    assert [row.title for row in chosen.rows] == ["node-005", *(f"node-{node:03}" for node in range(10, 25))]
    assert (len(chosen.rows), chosen.left_out) == (MOST_ROWS, 4 * (nodes - MOST_ROWS))


def test_the_slot_of_the_job_is_on_its_gpus_alone() -> None:
    cards = cards_of([], 4, nodes=2)
    slot: Range = (micros(20), micros(80))
    by_card = [draw_row(row, By.CARD, [], {0: slot}, START, END) for row in rows_of(cards, By.CARD)]
    assert [row.slot for row in by_card] == [slot, None, None, None]
    by_node = [draw_row(row, By.NODE, [], {0: slot, 2: slot}, START, END) for row in rows_of(cards, By.NODE)]
    assert [(row.slot, row.slot_gpus) for row in by_node] == [(slot, 2), (None, 0)]
