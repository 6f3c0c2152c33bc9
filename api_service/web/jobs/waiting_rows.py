"""The rows of the picture that shows why a job waits: which GPUs are taken until when, and where its slot is.

Times are ints as in `reservation_core.domain.calendar`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby, pairwise

from api_service.web.calendar.free_runs import FreeRun, free_counts, runs_of
from api_service.web.calendar.timeline_entries import SeenEntry
from api_service.web.calendar.timeline_rows import By, Row, rows_of
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.calendar import FOREVER, Range, node_windows, to_micros
from reservation_core.domain.statuses import ReservationKind

MOST_ROWS = 16
_MOST_BARS = 24


class BarKind(StrEnum):
    """What a bar stands for; also its class in the style sheet."""

    MINE = "mine"
    JOB = "job"
    BOOKING = "booking"
    MAINTENANCE = "maintenance"
    TAKEN = "taken"
    OUT = "out"


_MANY = {BarKind.JOB: "jobs", BarKind.BOOKING: "bookings", BarKind.MAINTENANCE: "maintenance windows"}


@dataclass(frozen=True, slots=True)
class Bar:
    """[start, end) of a GPU, within the window. `until` is the real end, None where it has none.

    `planned`: the slot of a waiting job. `words` has all that the viewer may know, a line each.
    """

    start: int
    end: int
    until: int | None
    kind: BarKind
    label: str
    words: str
    href: str | None = None
    planned: bool = False


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A GPU with its `bars`, or a node with the `counts` of its free GPUs and the entries that have the others.

    `slot` has the job's own slot on this row, and `slot_gpus` how many GPUs of the row that slot has.
    """

    title: str
    detail: str
    gpus: int
    bars: tuple[Bar, ...] = ()
    counts: tuple[FreeRun, ...] = ()
    holders: tuple[Bar, ...] = ()
    slot: Range | None = None
    slot_gpus: int = 0


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """The rows of a picture; `left_out` counts the GPUs that have none."""

    by: By
    rows: tuple[Row, ...]
    left_out: int


def choose_rows(cards: Sequence[BookableGpu], slot: Collection[int], gpus: int, length: int, now: int) -> ChosenRows:
    """A row for each GPU, or with more than 16 for each node.

    Of more than 16 nodes those of the slot come first, then those on which so many GPUs are free the earliest for so
    long.
    """
    by = By.CARD if len(cards) <= MOST_ROWS else By.NODE
    rows = rows_of(cards, by)
    if len(rows) <= MOST_ROWS:
        return ChosenRows(by, tuple(rows), 0)

    def rank(row: Row) -> tuple[bool, int]:
        usable = [card.busy for card in row.cards if card.available]
        first = next(iter(node_windows(usable, gpus, length, now)), (FOREVER, FOREVER))[0]
        return not any(card.gpu_id in slot for card in row.cards), first

    chosen = sorted(sorted(rows, key=rank)[:MOST_ROWS], key=rows.index)
    return ChosenRows(by, tuple(chosen), len(cards) - sum(len(row.cards) for row in chosen))


def draw_row(
    row: Row, by: By, entries: Sequence[SeenEntry], slots: Mapping[int, Range], start: int, end: int
) -> WaitingRow:
    """A row within [start, end). `slots` are the ranges of the job's own slot by GPU."""
    own = [slots[card.gpu_id] for card in row.cards if card.gpu_id in slots]
    slot = (min(first for first, _ in own), max(last for _, last in own)) if own else None
    drawn = WaitingRow(row.title, row.detail, len(row.cards), slot=slot, slot_gpus=len(own))
    if by is By.CARD:
        return replace(drawn, bars=tuple(at_most_bars(bars_of_gpu(row.cards[0], entries, start, end), end - start)))
    counts = runs_of(free_counts(row.cards, start, end), _MOST_BARS)
    here = {card.gpu_id for card in row.cards}
    holders = tuple(_held(seen, start, end) for seen in entries if not here.isdisjoint(seen.entry.gpu_ids))
    return replace(drawn, counts=tuple(counts), holders=holders)


def bars_of_gpu(card: BookableGpu, entries: Iterable[SeenEntry], start: int, end: int) -> list[Bar]:
    """What takes a GPU in [start, end), in order: its busy ranges, each with the entry that has it.

    A GPU that takes nothing new is out of use in between.
    """
    here = [seen for seen in entries if card.gpu_id in seen.entry.gpu_ids]
    bars: list[Bar] = []
    at = start
    for first, last in card.busy:
        begin, over = max(first, at), min(last, end)
        if begin >= over:
            continue
        if not card.available and at < begin:
            bars.append(_out_of_use(at, begin))
        bars += _pieces(begin, over, last, here)
        at = over
    if not card.available and at < end:
        bars.append(_out_of_use(at, end))
    return bars


def at_most_bars(bars: Sequence[Bar], span: int) -> list[Bar]:
    """At most 24 bars: of too many, those with too small a gap to see between them become one."""
    if len(bars) <= _MOST_BARS:
        return list(bars)
    gap = span // (_MOST_BARS - 1)
    made: list[list[Bar]] = [[bars[0]]]
    for bar in bars[1:]:
        if bar.start - made[-1][-1].end <= gap:
            made[-1].append(bar)
        else:
            made.append([bar])
    return [_joined(group) for group in made]


def _pieces(begin: int, over: int, real_end: int, entries: Sequence[SeenEntry]) -> list[Bar]:
    """A busy range, cut where the entry that has it changes."""
    spans = [(to_micros(seen.entry.span.start), to_micros(seen.entry.span.end), seen) for seen in entries]
    cuts = {begin, over, *(edge for first, last, _ in spans for edge in (first, last) if begin < edge < over)}
    pieces = [
        (start, end, next((seen for first, last, seen in spans if first <= start and end <= last), None))
        for start, end in pairwise(sorted(cuts))
    ]
    bars = []
    for _, group in groupby(pieces, key=lambda piece: id(piece[2])):
        (start, end, seen), *more = group
        end = more[-1][1] if more else end
        bars.append(_taken(start, end) if seen is None else _held(seen, start, end))
    return [replace(bar, until=real_end) if bar.end == over and bar.kind is BarKind.TAKEN else bar for bar in bars]


def _held(seen: SeenEntry, start: int, end: int) -> Bar:
    entry = seen.entry
    return Bar(
        max(start, to_micros(entry.span.start)),
        min(end, to_micros(entry.span.end)),
        to_micros(entry.ends_at),
        _kind(seen),
        seen.label,
        seen.words,
        seen.href,
        entry.planned,
    )


def _kind(seen: SeenEntry) -> BarKind:
    if seen.mine:
        return BarKind.MINE
    match seen.entry.kind:
        case ReservationKind.BOOKING:
            return BarKind.BOOKING
        case ReservationKind.JOB:
            return BarKind.JOB
        case ReservationKind.MAINTENANCE:
            return BarKind.MAINTENANCE


def _taken(start: int, end: int) -> Bar:
    return Bar(start, end, end, BarKind.TAKEN, "taken", "Taken, or not usable now")


def _out_of_use(start: int, end: int) -> Bar:
    return Bar(start, end, None, BarKind.OUT, "out of use", "This GPU gets no new work now")


def _joined(bars: Sequence[Bar]) -> Bar:
    if len(bars) == 1:
        return bars[0]
    kinds = {bar.kind for bar in bars}
    kind = kinds.pop() if len(kinds) == 1 else BarKind.TAKEN
    label = f"{len(bars)} {_MANY.get(kind, 'jobs and bookings')}"
    planned = all(bar.planned for bar in bars)
    return Bar(
        bars[0].start, bars[-1].end, bars[-1].until, kind, label, f"{label}, close to each other", planned=planned
    )
