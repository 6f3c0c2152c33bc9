"""Nodes and groups of them as HTML, cached until they change for a viewer.

Of 500 nodes a handful change at a time, and most look the same to all viewers.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from zoneinfo import ZoneInfo

from markupsafe import Markup

from api_service.access.sight import Sight
from api_service.web.fleet.card_tiles import TileState, TileWriter
from api_service.web.fleet.fleet import FleetNode
from api_service.web.fleet.node_groups import NodeGroup
from api_service.web.rendering import Templates
from api_service.web.words import clock
from reservation_core.ports.nodes.cards_now import GpuNow

_NODES_KEPT, _GROUPS_KEPT = 20_000, 1_000


class Density(StrEnum):
    """How much a page says of a node. The value is a CSS class."""

    LARGE = "large"
    """GPUs with words."""
    SMALL = "small"
    """GPUs without words."""
    MAP = "map"
    """The number of free GPUs."""
    USE = "use"
    """GPUs by how busy they are: drawn by `use_map`, not here."""


@dataclass(frozen=True)
class Look:
    """How one viewer looks at nodes. `kind`: only GPUs of this type; `mine`: only their own."""

    sight: Sight
    zone: ZoneInfo
    now: datetime
    kind: str | None
    mine: bool
    density: Density = Density.SMALL

    @cached_property
    def mark(self) -> tuple[object, ...]:
        """What two looks at nodes with the same users and types have in common when they show the same."""
        today = self.now.astimezone(self.zone).date()
        return self.zone.key, today, self.sight.caller.is_admin, self.mine, self.density

    def seen(self, users: frozenset[int]) -> tuple[object, ...]:
        """Which of these users are the viewer, and which the viewer may see."""
        sight = self.sight
        own = sight.caller.user_id if sight.caller.user_id in users else None
        return own, None if sight.sees_all else users.intersection(sight.fellows or ())

    def shows(self, card: GpuNow) -> bool:
        """Whether the filter lets this GPU through."""
        if self.kind not in (None, card.gpu_type):
            return False
        if not self.mine:
            return True
        holds = (card.holder, card.follower)
        return any(hold is not None and hold.user_id == self.sight.caller.user_id for hold in holds)


class NodeMarkup:
    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._nodes: OrderedDict[tuple[object, ...], tuple[FleetNode, Markup]] = OrderedDict()
        self._groups: OrderedDict[tuple[object, ...], tuple[NodeGroup, Markup]] = OrderedDict()

    def of(self, node: FleetNode, look: Look) -> Markup:
        """A node as an element, whose id is the node's mark."""
        key = (node.mark, look.seen(node.users), look.kind if len(node.kinds) > 1 else None, *look.mark)
        kept = self._nodes.get(key)
        if kept is None or kept[0] is not node:
            kept = node, self._draw(node, look)
            self._nodes[key] = kept
        self._nodes.move_to_end(key)
        while len(self._nodes) > _NODES_KEPT:
            self._nodes.popitem(last=False)
        return kept[1]

    def group(self, group: NodeGroup, look: Look) -> Markup:
        """All nodes of a group, kept until one of them changes."""
        key = (group.mark, look.seen(group.users), look.kind, *look.mark)
        kept = self._groups.get(key)
        if kept is None or kept[0] is not group:
            kept = group, self.all(group.nodes, look)
            self._groups[key] = kept
        self._groups.move_to_end(key)
        while len(self._groups) > _GROUPS_KEPT:
            self._groups.popitem(last=False)
        return kept[1]

    def all(self, nodes: Iterable[FleetNode], look: Look) -> Markup:
        return Markup("".join(self.of(node, look) for node in nodes))  # noqa: S704 - each is markup

    def swaps(self, nodes: Iterable[FleetNode], look: Look) -> Markup:
        """The same elements, marked to replace those on the page."""
        return Markup("".join(self._swap(node, look) for node in nodes))  # noqa: S704 - each is markup

    def _swap(self, node: FleetNode, look: Look) -> str:
        return str(self.of(node, look)).replace(" id=", ' hx-swap-oob="morph" id=', 1)

    def _draw(self, node: FleetNode, look: Look) -> Markup:
        writer = TileWriter(look.sight, lambda when: clock(when, look.zone, look.now))
        tiles = [
            writer.tile(card, available=node.now.available, address=node.address)
            for card in node.cards
            if look.shows(card)
        ]
        text = self._templates.text(
            "_cell.html" if look.density is Density.MAP else "_node.html",
            zone=look.zone,
            now=look.now,
            node=node,
            tiles=tiles,
            free=sum(tile.state is TileState.FREE for tile in tiles),
            mine=sum(tile.state is TileState.MINE for tile in tiles),
            large=look.density is Density.LARGE,
            admin=look.sight.caller.is_admin,
        )
        return Markup(text)  # noqa: S704 - a template's own text, escaped where it had to be
