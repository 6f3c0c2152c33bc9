"""Free slots, the slots nearest to a wish, and free GPUs over time.

Starts are whole minutes. Times are ints as in `calendar`; results are datetimes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import accumulate, chain, islice

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.card_choice import BookableGpu, by_node
from reservation_core.domain.bookings.nouns import FreeSlot, Wanted
from reservation_core.domain.calendar import (
    Range,
    length_micros,
    node_windows,
    to_micros,
    to_moment,
    windows_of_at_least,
)

MINUTE = 60_000_000
NEAREST = 4
"""How many slots a refusal suggests."""


def free_slots(
    gpus: Iterable[BookableGpu], wanted: Wanted, length: timedelta, start: datetime, end: datetime
) -> list[FreeSlot]:
    """Every time in [start, end) at which the request fits, as ranges of starts, ordered by start and type."""
    slots = [
        FreeSlot(gpu_type, Span(to_moment(first), to_moment(first) + length), to_moment(last))
        for gpu_type, windows in start_ranges(gpus, wanted, length, start, end)
        for first, last in windows
    ]
    return sorted(slots, key=lambda slot: (slot.span.start, slot.gpu_type))


def nearest_slots(
    gpus: Collection[BookableGpu],
    wanted: Wanted,
    wish: Span,
    start: datetime,
    end: datetime,
    *,
    aims: Collection[datetime] = (),
    allowed: Callable[[str, Span], bool] = lambda _gpu_type, _span: True,
    count: int = NEAREST,
) -> list[Span]:
    """The slots in [start, end) nearest to a wish, in order of time: one before and one after it where they exist.

    A long free time is split into consecutive slots from the wish on, and the slots of one side have starts at least
    half a slot apart. `aims` are more starts to search around,
    `allowed` tells whether the rules allow a type and slot.
    """
    length, aim = wish.length, to_micros(wish.start)
    step = length_micros(length)
    starts: dict[int, set[str]] = {}
    for gpu_type, windows in start_ranges(gpus, wanted, length, start, end):
        for at in {to_micros(moment) for moment in aims} | {aim}:
            for first, last in windows:
                nearest = min(max(at, first), last)
                for candidate in range(nearest - (count - 1) * step, nearest + count * step, step):
                    if first <= candidate <= last:
                        starts.setdefault(candidate, set()).add(gpu_type)

    def fits(at: int) -> bool:
        span = Span(to_moment(at), to_moment(at) + length)
        return any(allowed(gpu_type, span) for gpu_type in starts[at])

    ordered = sorted(starts, key=lambda at: (abs(at - aim), at))
    before = _apart((at for at in ordered if at < aim and fits(at)), step // 2)
    after = _apart((at for at in ordered if at >= aim and fits(at)), step // 2)
    sides = [list(islice(side, count)) for side in (before, after)]
    chosen = [at for side in sides for at in side[:1]]
    chosen += sorted((at for side in sides for at in side[1:]), key=lambda at: (abs(at - aim), at))
    return [Span(to_moment(at), to_moment(at) + length) for at in sorted(chosen[:count])]


def _apart(starts: Iterable[int], least: int) -> Iterator[int]:
    """Those starts that are at least this far from all before them."""
    taken: list[int] = []
    for at in starts:
        if all(abs(at - other) >= least for other in taken):
            taken.append(at)
            yield at


def start_ranges(
    gpus: Iterable[BookableGpu], wanted: Wanted, length: timedelta, start: datetime, end: datetime
) -> list[tuple[str, list[Range]]]:
    """By type, the closed ranges of whole minutes at which the request can start and lie in [start, end)."""
    duration = length_micros(length)
    earliest, latest = to_micros(start), to_micros(end) - duration
    ranges: list[tuple[str, list[Range]]] = []
    for gpu_type, nodes in by_node(gpus, wanted).items():
        able = [group for group in nodes.values() if len(group) >= wanted.gpus]
        windows = [node_windows([gpu.busy for gpu in group], wanted.gpus, duration, earliest) for group in able]
        joint = chain.from_iterable(windows) if wanted.nodes == 1 else windows_of_at_least(wanted.nodes, windows)
        if minutes := _whole_minutes(joint, latest):
            ranges.append((gpu_type, minutes))
    return ranges


def free_counts(
    gpus: Iterable[BookableGpu], start: datetime, end: datetime, step: timedelta
) -> dict[str, tuple[int, list[int]]]:
    """By type: how many GPUs exist, and for each step from `start` on how many are free during all of it."""
    begin, until, width = to_micros(start), to_micros(end), length_micros(step)
    steps = -(-(until - begin) // width)
    totals: dict[str, int] = {}
    # By type: the change of the count from one step to the next.
    changes: dict[str, list[int]] = {}
    for gpu in gpus:
        totals[gpu.gpu_type] = totals.get(gpu.gpu_type, 0) + 1
        change = changes.setdefault(gpu.gpu_type, [0] * (steps + 1))
        if not gpu.available:
            continue
        change[0] += 1
        free_from = 0
        for busy_start, busy_end in gpu.busy:
            if busy_end <= begin:
                continue
            if busy_start >= until:
                break
            first = (busy_start - begin) // width
            if first < free_from:  # two ranges may touch one step
                first = free_from
            after = -((begin - busy_end) // width)
            if after > steps:
                after = steps
            if after > first:
                change[first] -= 1
                change[after] += 1
                free_from = after
    return {
        gpu_type: (totals[gpu_type], list(accumulate(change[:steps]))) for gpu_type, change in sorted(changes.items())
    }


def _whole_minutes(windows: Iterable[Range], latest: int) -> list[Range]:
    """The whole minutes in these closed ranges up to `latest`, as disjoint closed ranges in order."""
    minutes: list[Range] = []
    for first, last in sorted(windows):
        if first > latest:
            break
        begin = -(-first // MINUTE) * MINUTE
        end = min(last, latest) // MINUTE * MINUTE
        if begin > end:
            continue
        if minutes and begin <= minutes[-1][1] + MINUTE:
            if end > minutes[-1][1]:
                minutes[-1] = (minutes[-1][0], end)
        else:
            minutes.append((begin, end))
    return minutes
