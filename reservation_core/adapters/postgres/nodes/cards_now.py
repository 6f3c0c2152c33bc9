"""Nodes with their current GPUs, parsed only where they have changed."""

import json
from typing import Any

from sqlalchemy import Row

from reservation_core.domain.calendar import to_moment
from reservation_core.domain.model import GpuState, ReservationKind
from reservation_core.ports.nodes.cards_now import GpuHold, GpuNow, NodeNow


def node_now_of(row: Row[Any], known: NodeNow | None) -> NodeNow:
    """A row of `nodes_now`; `known` itself if it was made from the same row."""
    if known is not None and (row.available, row.detail, row.rack, row.cards) == (
        known.available, known.detail, known.rack, known.source
    ):  # fmt: skip
        return known
    cards = tuple(_card(row.name, *values) for values in json.loads(row.cards))
    return NodeNow(row.name, row.available, row.detail, cards, row.rack, row.cards)


def _card(
    node: str,
    index: int,
    uuid: str | None,
    gpu_type: str,
    memory_bytes: int | None,
    state: str,
    holder: list[Any] | None,
    follower: list[Any] | None,
) -> GpuNow:
    return GpuNow(node, index, uuid, gpu_type, memory_bytes, GpuState(state), _hold(holder), _hold(follower))


def _hold(values: list[Any] | None) -> GpuHold | None:
    if values is None:
        return None
    reservation_id, kind, user_id, user, starts_at, ends_at = values
    return GpuHold(reservation_id, ReservationKind(kind), user_id, user, to_moment(starts_at), to_moment(ends_at))
