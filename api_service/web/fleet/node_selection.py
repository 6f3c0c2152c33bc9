"""The nodes that a filter shows, in groups, kept until the fleet changes.

A group whose nodes have not changed is the same object as before, with all that was counted and drawn of it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from api_service.web.fleet.fleet import FleetNode, FleetPicture
from api_service.web.fleet.node_filter import NodeFilter, NodeOrder, NodeView
from api_service.web.fleet.node_groups import NodeGroup, group_nodes
from api_service.web.fleet.node_markup import Look

_KEPT = 200


@dataclass(frozen=True, slots=True)
class Selection:
    """Nodes in the page's order, in groups, and how many of their GPUs the filter lets through."""

    nodes: Sequence[FleetNode]
    groups: Sequence[NodeGroup]
    cards: int


class NodeSelections:
    """What filters lately showed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[NodeFilter, tuple[Sequence[FleetNode], Selection]] = OrderedDict()

    def of(self, fleet: FleetPicture, chosen: NodeFilter, look: Look) -> Selection:
        """What a filter shows of the fleet."""
        if chosen.mine:
            return _select(fleet, chosen, look, ())  # one viewer's alone
        key = replace(chosen, view=NodeView.AUTO)
        nodes, selection = self._kept.pop(key, (None, None))
        if selection is None or nodes is not fleet.nodes:
            selection = _select(fleet, chosen, look, () if selection is None else selection.groups)
        self._kept[key] = fleet.nodes, selection
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return selection


def _select(fleet: FleetPicture, chosen: NodeFilter, look: Look, before: Sequence[NodeGroup]) -> Selection:
    nodes = list(fleet.nodes)
    if chosen.node or chosen.rack or chosen.free:
        exactly = chosen.node in fleet.by_name
        nodes = [node for node in nodes if chosen.matches(node, exactly=exactly)]
    if chosen.kind or chosen.mine:
        here = [(node, sum(map(look.shows, node.cards))) for node in nodes]
        nodes, cards = [node for node, count in here if count], sum(count for _, count in here)
    else:
        cards = sum(len(node.cards) for node in nodes)
    nodes = chosen.sort(nodes)
    known = {group.mark: group for group in before}
    groups = group_nodes(nodes, chosen.kind or None, by_free=chosen.order is NodeOrder.FREE)
    return Selection(nodes, [_unchanged(known.get(group.mark), group) for group in groups], cards)


def _unchanged(known: NodeGroup | None, group: NodeGroup) -> NodeGroup:
    return known if known is not None and known.nodes == group.nodes else group
