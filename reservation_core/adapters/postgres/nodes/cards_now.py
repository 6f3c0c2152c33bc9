"""Nodes with their current GPUs, parsed only where they have changed."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row

from reservation_core.domain.calendar import to_moment
from reservation_core.domain.statuses import GpuState, ReservationKind
from reservation_core.ports.nodes.cards_now import GpuHold, GpuNow, NodeNow


def node_now_of(row: Row[Any], before: Mapping[str, NodeNow]) -> NodeNow:
    """A row of `nodes_now`; a node of `before` that was made from the same row is that object."""
    name: str = row[0]
    values: list[Any] = list(row[1:])
    known = before.get(name)
    if known is not None and known.source == values:
        return known
    available, detail, cards, rack = values
    return NodeNow(name, available, detail, tuple(_card(name, *card) for card in json.loads(cards)), rack, values)


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
