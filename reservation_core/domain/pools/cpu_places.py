"""Where jobs without GPUs run: on what nodes keep for them, apart from the shares of all their GPUs.

The planner sees that part of a node as a node of its own, with places in GPUs' stead, in a picture of its own: whatever
jobs without GPUs wait, start and end, nothing about jobs with GPUs changes.
"""

from collections.abc import Iterable

from reservation_core.domain.model import Gpu, Node
from reservation_core.domain.request_terms import CPU_TYPE

CPU_PLACES = 32
"""So many jobs without GPUs a node has at once."""


def place_id(node_id: int, place: int) -> int:
    """What the planner calls a place; no GPU has such an id."""
    return -1 - node_id * CPU_PLACES - place


def cpu_nodes(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The parts of these nodes that are kept for jobs without GPUs."""
    return tuple(
        Node(
            node.name,
            tuple(Gpu(place_id(node.spare.node_id, place), node.name, place, CPU_TYPE) for place in range(CPU_PLACES)),
            node.available,
            node.unavailable_detail,
            cpu_milli=node.spare.cpu_milli,
            memory_bytes=node.spare.memory_bytes,
        )
        for node in nodes
        if node.spare is not None
    )
