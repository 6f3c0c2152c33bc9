"""What lies on the calendar's rows, as one person sees it: whose it is where they may know, and what they can do."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, assert_never

from api_service.access.sight import Sight
from api_service.web import words
from api_service.web.calendar.timeline_rows import Row
from api_service.web.calendar.timeline_window import DayWindow
from reservation_core.domain.model import BookingStatus, ReservationKind
from reservation_core.ports.bookings.bookings import CalendarEntry

_NARROWEST = timedelta(minutes=15)
"""What the clocks make shorter than this (an hour that comes twice) is drawn as long as this."""


@dataclass(frozen=True, slots=True)
class SeenEntry:
    """One entry as somebody sees it. `label` is short, `words` say all.

    `rows`: how many of its cards are in which rows. `href`: where it can be looked at. `movable` and `extendable`: what
    may be dragged.
    """

    entry: CalendarEntry
    rows: Mapping[str, int]
    label: str
    words: str
    mine: bool
    href: str | None
    movable: bool
    extendable: bool


def seen(
    entries: Iterable[CalendarEntry], rows: Sequence[Row], sight: Sight, window: DayWindow, now: datetime
) -> list[SeenEntry]:
    """Entries as the caller sees them, with the rows that they are in."""
    row_of = {card.gpu_id: row.id for row in rows for card in row.cards}

    @cache  # most begin and end with the hour
    def clock(moment: datetime) -> str:
        return words.clock(moment, window.zone, now)

    return [_seen(entry, row_of, sight, now, clock) for entry in entries]


def _seen(
    entry: CalendarEntry, row_of: Mapping[int, str], sight: Sight, now: datetime, clock: Callable[[datetime], str]
) -> SeenEntry:
    counts: dict[str, int] = {}
    for gpu_id in entry.gpu_ids:
        if gpu_id in row_of:
            counts[row_of[gpu_id]] = counts.get(row_of[gpu_id], 0) + 1
    mine = entry.user_id == sight.caller.user_id
    open_to = mine or sight.caller.is_admin
    label, told = _named(entry, sight, mine=mine)
    cards = entry.gpus * entry.nodes
    gpus = "1 GPU" if cards == 1 else f"{cards} GPUs"
    told = f"{told}, {gpus}, {clock(entry.span.start)} to {clock(entry.span.end)}"
    open_one = entry.status in (BookingStatus.CONFIRMED, BookingStatus.ACTIVE) and entry.span.end > now
    changeable = mine and entry.kind is ReservationKind.BOOKING and open_one
    return SeenEntry(
        entry=entry,
        rows=counts,
        label=label,
        words=f"{told}, {entry.status}",
        mine=mine,
        href=_address(entry) if open_to else None,
        movable=changeable and entry.span.start > now,
        extendable=changeable,
    )


def _named(entry: CalendarEntry, sight: Sight, *, mine: bool) -> tuple[str, str]:
    """The label of an entry, and the beginning of its tooltip."""
    known = sight.sees(entry.user_id)
    own = entry.title or f"{entry.gpus * entry.nodes} × GPU"
    match entry.kind:
        case ReservationKind.BOOKING:
            if mine:
                return own, f"Your booking {entry.title or entry.id}"
            return (entry.user, f"Booking of {entry.user}") if known else ("taken", "Booked by somebody")
        case ReservationKind.JOB:
            verb = "planned" if entry.planned else "runs"
            if mine:
                return f"{entry.title or entry.id} ({verb})", f"Your job {entry.title or entry.id}, {verb}"
            return (f"{entry.user} ({verb})", f"Job of {entry.user}, {verb}") if known else ("taken", "Somebody's job")
        case ReservationKind.MAINTENANCE:
            return "maintenance", "Maintenance"
        case _:
            assert_never(entry.kind)


def _address(entry: CalendarEntry) -> str | None:
    match entry.kind:
        case ReservationKind.BOOKING:
            return f"/bookings/{entry.id}"
        case ReservationKind.JOB:
            return f"/jobs/{entry.id}"
        case ReservationKind.MAINTENANCE:
            return None
        case _:
            assert_never(entry.kind)


def events(found: Iterable[SeenEntry], rows: Sequence[Row], window: DayWindow) -> list[dict[str, Any]]:
    """What the timeline draws. Jobs and maintenance that take whole rows lie behind, else they are in the row."""
    wall = cache(window.wall)
    sizes = {row.id: len(row.cards) for row in rows}
    drawn: list[dict[str, Any]] = []
    for number, seen_entry in enumerate(found):
        behind = [row for row, count in seen_entry.rows.items() if _is_behind(seen_entry, count, sizes[row])]
        before = [row for row in seen_entry.rows if row not in behind]
        if before:
            drawn.append(_event(seen_entry, number, before, wall, behind=False))
        if behind:
            drawn.append(_event(seen_entry, number, behind, wall, behind=True))
    return drawn


def _is_behind(each: SeenEntry, count: int, size: int) -> bool:
    return each.entry.kind is not ReservationKind.BOOKING and count == size


def _event(
    each: SeenEntry, number: int, rows: Collection[str], wall: Callable[[datetime], str], *, behind: bool
) -> dict[str, Any]:
    entry = each.entry
    start, end = wall(entry.span.start), wall(entry.span.end)
    if end <= start:
        end = (datetime.fromisoformat(start) + _NARROWEST).isoformat(timespec="seconds")
    # Absent keys mean false: there may be thousands of these.
    more: dict[str, Any] = {"words": each.words}
    event: dict[str, Any] = {
        # A viewer who may not know the owner may not know the id either: it is in others' logs and events.
        "id": f"{number if each.href is None else entry.id}{'~' if behind else ''}",
        "resourceIds": sorted(rows),
        "start": start,
        "end": end,
        "title": each.label,
        "classNames": [entry.kind.value, "mine" if each.mine else "others", entry.status],
        "extendedProps": more,
    }
    if entry.planned:
        event["classNames"].append("planned")
    if behind:
        event["display"] = "background"
    if each.href is not None:
        more["href"] = each.href
    if each.extendable:
        event |= {"durationEditable": True, "startEditable": each.movable}
        more |= {"booking": entry.id, "movable": each.movable, "nodes": entry.nodes}
    return event
