"""Nodes of one GPU type, in one rack where racks are known: the headings of a large fleet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2s

from api_service.web.fleet.fleet import FleetNode
from api_service.web.fleet.node_filter import NodeFilter

MOST_RACKS = 60
"""With more groups, or with a rack for each node, nodes are grouped by type alone."""


@dataclass(frozen=True)
class NodeGroup:
    """Nodes in the page's order. `kind`: only GPUs of this type count."""

    type_name: str
    rack: str
    kind: str | None
    nodes: tuple[FleetNode, ...]

    @cached_property
    def users(self) -> frozenset[int]:
        """Users with a hold here, now or soon."""
        return frozenset(user_id for node in self.nodes for user_id in node.users)

    @cached_property
    def mark(self) -> str:
        """An id within a page."""
        return "g" + blake2s(f"{self.type_name}/{self.rack}".encode(), digest_size=8).hexdigest()

    def query(self, chosen: NodeFilter) -> str:
        """The address of this group alone, with the rest of the filter."""
        kind = self.kind or (self.nodes[0].kinds[0] if self.nodes[0].kinds else "")
        return replace(chosen, kind=kind, rack=self.rack or chosen.rack).query

    @cached_property
    def gpus(self) -> int:
        if self.kind is None:
            return sum(len(node.cards) for node in self.nodes)
        return sum(card.gpu_type == self.kind for node in self.nodes for card in node.cards)

    @cached_property
    def free(self) -> int:
        return sum(node.free(self.kind) for node in self.nodes)

    @cached_property
    def together(self) -> int:
        """The most free GPUs on one node."""
        return max(node.free(self.kind) for node in self.nodes)


def one_group(nodes: Sequence[FleetNode], kind: str | None) -> list[NodeGroup]:
    """All nodes, whatever their types are; no group without nodes."""
    return [NodeGroup("", "", kind, tuple(nodes))] if nodes else []


def group_nodes(nodes: Sequence[FleetNode], kind: str | None, *, by_free: bool) -> list[NodeGroup]:
    """Groups by name, or those with the most free GPUs on one node first."""
    racks = _grouped(((node.kinds, node.rack), node) for node in nodes)
    few = len(racks) <= min(MOST_RACKS, len(nodes) // 2)
    found = racks if few else _grouped(((node.kinds, ""), node) for node in nodes)
    groups = [
        NodeGroup(kind or ", ".join(kinds) or "no GPU", rack, kind, tuple(found[kinds, rack]))
        for kinds, rack in sorted(found)
    ]
    return sorted(groups, key=lambda group: (-group.together, -group.free)) if by_free else groups


_Key = tuple[tuple[str, ...], str]


def _grouped(keyed: Iterable[tuple[_Key, FleetNode]]) -> dict[_Key, list[FleetNode]]:
    found: dict[_Key, list[FleetNode]] = {}
    for key, node in keyed:
        found.setdefault(key, []).append(node)
    return found
