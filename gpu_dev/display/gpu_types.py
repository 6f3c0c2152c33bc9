"""GPUs counted by type."""

from collections.abc import Container, Iterable
from datetime import datetime
from itertools import groupby

from msgspec import Struct

from gpu_dev.display.views import takes_new
from gpu_dev.wire.nodes import GpuOut, NodeOut
from reservation_core.domain.model import GpuState


class TypeSummary(Struct, kw_only=True):
    """The counted GPUs of one type; `next_free_at` is null when one is free now or no time is known."""

    gpu_type: str
    total: int
    free: int
    held: int
    unusable: int
    most_free_on_one_node: int
    next_free_at: datetime | None


def summarise(cards: Iterable[GpuOut], nodes: Iterable[NodeOut] = ()) -> list[TypeSummary]:
    """Count GPUs by type, in the order of the types' names. Those of `nodes` that take nothing new are not free."""
    closed = {node.name for node in nodes if not takes_new(node)}
    by_type = groupby(sorted(cards, key=lambda card: (card.gpu_type, card.node)), key=lambda card: card.gpu_type)
    return [_summary(gpu_type, list(group), closed) for gpu_type, group in by_type]


def _summary(gpu_type: str, cards: list[GpuOut], closed: Container[str]) -> TypeSummary:
    free = [card for card in cards if card.state is GpuState.FREE and card.node not in closed]
    held = sum(card.state is GpuState.HELD for card in cards)
    coming = [card.free_at for card in cards if card.state is GpuState.HELD and card.free_at is not None]
    per_node = [sum(1 for _ in group) for _, group in groupby(free, key=lambda card: card.node)]
    return TypeSummary(
        gpu_type=gpu_type,
        total=len(cards),
        free=len(free),
        held=held,
        unusable=len(cards) - len(free) - held,
        most_free_on_one_node=max(per_node, default=0),
        next_free_at=None if free else min(coming, default=None),
    )
