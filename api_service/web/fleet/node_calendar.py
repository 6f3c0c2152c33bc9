"""The GPUs of a node now, and what runs, is booked or planned there in the days ahead."""

from collections.abc import Sequence
from dataclasses import dataclass

from api_service.access.sight import Sight, sight_of
from api_service.web.calendar.timeline_data import read_calendar
from api_service.web.calendar.timeline_entries import SeenEntry
from api_service.web.calendar.timeline_query import TimelineQuery
from api_service.web.calendar.timeline_rows import By
from api_service.web.calendar.timeline_window import TimelineScale
from api_service.web.fleet.card_tiles import Tile, TileWriter
from api_service.web.fleet.fleet import FleetNode
from api_service.web.visit import Visit
from api_service.web.words import clock

_MOST = 100


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A job, a booking or a maintenance window with GPUs of the node. `is_now`: it has begun."""

    owner: str
    href: str | None
    gpus: str
    times: str
    status: str
    is_now: bool


@dataclass(frozen=True, slots=True)
class NodeCalendar:
    """A node's GPUs and its next entries by start; `more`: there are others, which the calendar shows."""

    node: FleetNode
    tiles: Sequence[Tile]
    entries: Sequence[NodeEntry]
    more: bool


async def read_node_calendar(visit: Visit, name: str) -> NodeCalendar | None:
    """Read what a node's GPUs are given to; None for a node that has no GPUs now."""
    node = (await visit.fleet.fleet()).by_name.get(name)
    if node is None:
        return None
    today = visit.now.astimezone(visit.zone).date()
    shown = await read_calendar(visit, TimelineQuery(TimelineScale.WEEK, By.NODE, today, None, name, 1, as_table=True))
    indices = {card.gpu_id: card.index for row in shown.rows.page.rows for card in row.cards}
    open_ones = sorted((one for one in shown.found if one.entry.span.end > visit.now), key=_start_of)
    entries = [_entry(visit, one, indices) for one in open_ones[:_MOST]]
    more = len(open_ones) > _MOST or bool(shown.merged) or shown.crowded
    return NodeCalendar(node, _tiles(visit, node, await _sight(visit)), entries, more)


def _start_of(one: SeenEntry) -> tuple[object, str]:
    return one.entry.span.start, one.entry.id


def _entry(visit: Visit, one: SeenEntry, indices: dict[int, int]) -> NodeEntry:
    owner, _, times, status, *_ = one.words.split("\n")
    here = sorted(indices[gpu_id] for gpu_id in one.entry.gpu_ids if gpu_id in indices)
    return NodeEntry(owner, one.href, ", ".join(map(str, here)), times, status, one.entry.span.start <= visit.now)


def _tiles(visit: Visit, node: FleetNode, sight: Sight) -> list[Tile]:
    writer = TileWriter(sight, lambda when: clock(when, visit.zone, visit.now))
    return [writer.tile(card, available=node.now.available, address=node.address) for card in node.cards]


async def _sight(visit: Visit) -> Sight:
    services = visit.services
    async with services.runtime.uow(one_statement=True) as uow:
        return await sight_of(uow, visit.principal, services.settings.holders)
