"""Nodes as HTML, cached until they change for a viewer.

Of 500 nodes a handful change at a time, and most look the same to all viewers.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from markupsafe import Markup

from api_service.access.sight import Sight
from api_service.web.fleet.card_tiles import TileState, TileWriter
from api_service.web.fleet.fleet import FleetNode
from api_service.web.rendering import Templates
from api_service.web.words import clock
from reservation_core.ports.nodes.cards_now import GpuNow

_KEPT = 20_000


class Density(StrEnum):
    """How much a page says of a node. The value is a CSS class."""

    LARGE = "large"
    """GPUs with words."""
    SMALL = "small"
    """GPUs without words."""
    MAP = "map"
    """The number of free GPUs."""


@dataclass(frozen=True, slots=True)
class Look:
    """How one viewer looks at nodes. `kind`: only GPUs of this type; `mine`: only their own."""

    sight: Sight
    zone: ZoneInfo
    now: datetime
    kind: str | None
    mine: bool
    density: Density = Density.SMALL

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
        self._drawn: OrderedDict[tuple[object, ...], tuple[FleetNode, Markup]] = OrderedDict()

    def of(self, node: FleetNode, look: Look) -> Markup:
        """A node as an element, whose id is the node's mark."""
        sight = look.sight
        seen = tuple((user_id == sight.caller.user_id, sight.sees(user_id)) for user_id in node.users)
        key = (
            node.mark,
            seen,
            look.zone.key,
            look.now.astimezone(look.zone).date(),
            sight.caller.is_admin,
            look.kind if len(node.kinds) > 1 else None,
            look.mine,
            look.density,
        )
        kept = self._drawn.get(key)
        if kept is not None and kept[0] is node:
            self._drawn.move_to_end(key)
            return kept[1]
        drawn = self._draw(node, look)
        self._drawn[key] = (node, drawn)
        self._drawn.move_to_end(key)
        while len(self._drawn) > _KEPT:
            self._drawn.popitem(last=False)
        return drawn

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
