"""The filter of the page Now, which is its address: which nodes and GPUs are shown, in what order, and how."""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlencode

from api_service.web.fleet.fleet import FleetNode


class NodeOrder(StrEnum):
    NAME = "name"
    FREE = "free"


class NodeView(StrEnum):
    """How nodes are drawn; AUTO decides by the number of GPUs."""

    AUTO = "auto"
    TILES = "tiles"
    MAP = "map"
    USE = "use"


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """GPUs of a type, of the viewer; nodes with such names, in a rack, with at least `free` free GPUs."""

    kind: str = ""
    rack: str = ""
    node: str = ""
    free: int = 0
    mine: bool = False
    order: NodeOrder = NodeOrder.NAME
    view: NodeView = NodeView.AUTO

    @property
    def fields(self) -> dict[str, str]:
        """The parameters of the address, without those that say nothing."""
        given = {
            "type": self.kind,
            "rack": self.rack,
            "node": self.node,
            "free": str(self.free) if self.free else "",
            "mine": "yes" if self.mine else "",
            "sort": "" if self.order is NodeOrder.NAME else self.order.value,
            "view": "" if self.view is NodeView.AUTO else self.view.value,
        }
        return {name: value for name, value in given.items() if value}

    @property
    def query(self) -> str:
        return urlencode(self.fields)

    @property
    def narrows(self) -> bool:
        """Whether something is left out."""
        return bool(self.kind or self.rack or self.node or self.free or self.mine)

    @property
    def moves_nodes(self) -> bool:
        """Whether a change of a GPU can add, remove or move nodes."""
        return bool(self.mine or self.free or self.order is not NodeOrder.NAME)

    def matches(self, node: FleetNode, *, exactly: bool) -> bool:
        """Whether the name, rack and free GPUs of a node match. `exactly`: `node` is a whole name."""
        if self.node and not (node.name == self.node if exactly else self.node.casefold() in node.name.casefold()):
            return False
        return self.rack in ("", node.rack) and node.free(self.kind or None) >= self.free

    def sort(self, nodes: list[FleetNode]) -> list[FleetNode]:
        """The nodes in this order; `nodes` are by name."""
        if self.order is NodeOrder.NAME:
            return nodes
        return sorted(nodes, key=lambda node: -node.free(self.kind or None))
