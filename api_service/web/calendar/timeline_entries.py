"""The entries on the calendar's rows as one viewer sees them: owners by policy, and what the viewer can change."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any, assert_never
from zlib import crc32

from api_service.access.sight import Sight
from api_service.web import words
from api_service.web.calendar.timeline_rows import Row
from api_service.web.calendar.timeline_window import DayWindow
from reservation_core.domain import status_words
from reservation_core.domain.bookings.card_choice import BookableGpu
from reservation_core.domain.policy.rule_words import counted
from reservation_core.domain.statuses import BookingStatus, ReservationKind
from reservation_core.ports.bookings.bookings import CalendarEntry

_MOST_NODES = 3
_NARROWEST = timedelta(minutes=15)
"""The shortest drawn entry: an entry in the hour that comes twice can end before it begins."""


@dataclass(frozen=True, slots=True)
class SeenEntry:
    """One entry as a viewer sees it. `label` is short, `words` has everything, a line each.

    `rows`: the rows with its GPUs. `href`: its page. `movable` and `extendable`: what may be dragged.
    """

    entry: CalendarEntry
    rows: Sequence[str]
    label: str
    words: str
    mine: bool
    href: str | None
    movable: bool
    extendable: bool


def see_entries(
    entries: Iterable[CalendarEntry], rows: Sequence[Row], sight: Sight, window: DayWindow, now: datetime
) -> list[SeenEntry]:
    """Entries as the viewer sees them, with their rows."""
    places = {card.gpu_id: (row.id, card) for row in rows for card in row.cards}

    @cache  # most times are whole hours
    def times(start: datetime, end: datetime) -> str:
        return words.clock_range(start, end, window.zone, now)

    span = cache(words.span)
    return [_seen(entry, places, sight, now, times, span) for entry in entries]


def _seen(
    entry: CalendarEntry,
    places: Mapping[int, tuple[str, BookableGpu]],
    sight: Sight,
    now: datetime,
    times: Callable[[datetime, datetime], str],
    span: Callable[[timedelta], str],
) -> SeenEntry:
    here = [places[gpu_id] for gpu_id in entry.gpu_ids if gpu_id in places]
    mine = entry.user_id == sight.caller.user_id and entry.kind is not ReservationKind.MAINTENANCE
    open_to = mine or sight.caller.is_admin
    label, owner_words = _named(entry, sight, mine=mine)
    cards = entry.gpus * entry.nodes
    more = " and more that are not shown here" if len(here) < len(entry.gpu_ids) else ""
    lines = (
        owner_words,
        "1 GPU" if cards == 1 else f"{cards} GPUs",
        times(entry.span.start, entry.ends_at),
        _status(entry, mine=mine),
        f"{span(entry.ends_at - entry.span.start)} on {_where([card for _, card in here])}{more}",
    )
    open_one = entry.status in (BookingStatus.CONFIRMED, BookingStatus.ACTIVE) and entry.span.end > now
    changeable = mine and entry.kind is ReservationKind.BOOKING and open_one
    return SeenEntry(
        entry=entry,
        rows=sorted({row for row, _ in here}),
        label=label,
        words="\n".join(lines),
        mine=mine,
        href=_address(entry) if open_to else None,
        movable=changeable and entry.span.start > now,
        extendable=changeable,
    )


def _named(entry: CalendarEntry, sight: Sight, *, mine: bool) -> tuple[str, str]:
    """The label of an entry, and the beginning of its tooltip."""
    known = sight.sees(entry.user_id)
    own = entry.title or counted(entry.gpus * entry.nodes, "GPU")
    match entry.kind:
        case ReservationKind.BOOKING:
            if mine:
                return own, f"Your booking {entry.title or entry.id}"
            return (entry.user, f"Booking of {entry.user}") if known else ("taken", "Booked by another user")
        case ReservationKind.JOB:
            verb = "planned" if entry.planned else "runs"
            if mine:
                return f"{entry.title or entry.id} ({verb})", f"Your job {entry.title or entry.id}, {verb}"
            return (f"{entry.user} ({verb})", f"Job of {entry.user}, {verb}") if known else ("taken", "Somebody's job")
        case ReservationKind.MAINTENANCE:
            return "maintenance", "Maintenance"
        case _:
            assert_never(entry.kind)


def _status(entry: CalendarEntry, *, mine: bool) -> str:
    """The status as lists write it."""
    match entry.kind:
        case ReservationKind.BOOKING:
            return status_words.booking_status(entry.status, mine=mine)
        case ReservationKind.MAINTENANCE:
            return status_words.window_status(entry.status)
        case ReservationKind.JOB:
            return entry.status
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


def _where(cards: Sequence[BookableGpu]) -> str:
    if len(cards) == 1:  # as of most entries, of which there may be thousands
        return f"{cards[0].node}: GPU {cards[0].index}"
    nodes: dict[str, list[int]] = {}
    for card in cards:
        nodes.setdefault(card.node, []).append(card.index)
    named = [
        f"{node}: {'GPU' if len(indices) == 1 else 'GPUs'} {', '.join(map(str, sorted(indices)))}"
        for node, indices in islice(nodes.items(), _MOST_NODES)
    ]
    left = len(nodes) - len(named)
    return "; ".join([*named, *([f"{left} more {'node' if left == 1 else 'nodes'}"] if left else [])])


def draw_events(found: Iterable[SeenEntry], window: DayWindow) -> list[dict[str, Any]]:
    """The timeline's events. Each keeps its id when others come and go: scripts find it again by that."""
    wall = cache(window.wall)
    alike: Counter[int] = Counter()

    def id_of(seen_entry: SeenEntry) -> str:
        if seen_entry.href is not None:
            return seen_entry.entry.id
        # The id of an entry would reveal its owner, by other logs and events: this says what is shown anyway.
        shown = crc32(repr((seen_entry.rows, seen_entry.entry.span.start, seen_entry.words)).encode())
        alike[shown] += 1
        return f"{shown:x}.{alike[shown]}"

    return [_event(seen_entry, id_of(seen_entry), wall) for seen_entry in found if seen_entry.rows]


def _event(seen_entry: SeenEntry, event_id: str, wall: Callable[[datetime], str]) -> dict[str, Any]:
    entry = seen_entry.entry
    start, end = wall(entry.span.start), wall(entry.span.end)
    if end <= start:
        end = (datetime.fromisoformat(start) + _NARROWEST).isoformat(timespec="seconds")
    # Absent keys mean false: there may be thousands of these.
    more: dict[str, Any] = {"words": seen_entry.words}
    event: dict[str, Any] = {
        "id": event_id,
        "resourceIds": seen_entry.rows,
        "start": start,
        "end": end,
        "title": seen_entry.label,
        "classNames": [entry.kind.value, "mine" if seen_entry.mine else "others", entry.status],
        "extendedProps": more,
    }
    if entry.planned:
        event["classNames"].append("planned")
    if seen_entry.href is not None:
        more["href"] = seen_entry.href
    if seen_entry.extendable:
        event |= {"durationEditable": True, "startEditable": seen_entry.movable}
        more |= {"booking": entry.id, "movable": seen_entry.movable, "nodes": entry.nodes}
    return event
