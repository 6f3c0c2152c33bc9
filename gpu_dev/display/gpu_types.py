"""GPUs counted by type, and one by one."""

from collections.abc import Callable, Container, Iterable
from datetime import datetime
from itertools import groupby
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gpu_dev.display.output import View
from gpu_dev.display.views import takes_new
from gpu_dev.wire.nodes import GpuNowOut, GpuOut, NodeOut
from reservation_core.domain.statuses import GpuState

Gpu = TypeVar("Gpu", GpuOut, GpuNowOut)
Number = TypeVar("Number", int, float)


class TypeSummary(Struct, kw_only=True):
    """The counted GPUs of one type; `next_free_at` is null when one is free now or no time is known.

    Of the `free` ones some are `taken_soon`, within the hour; if all are, none is free from `free_until` on.
    `most_free_on_one_node` counts those that stay free. CPUs and memory are those of the nodes with such GPUs, without
    what is kept for jobs without GPUs; null: not known.
    """

    gpu_type: str
    total: int
    free: int
    taken_soon: int = 0
    held: int
    unusable: int
    most_free_on_one_node: int
    next_free_at: datetime | None
    free_until: datetime | None = None
    cpus: float | None = None
    cpus_free: float | None = None
    memory_bytes: int | None = None
    memory_bytes_free: int | None = None


def summarise(cards: Iterable[GpuOut], nodes: Iterable[NodeOut] = ()) -> list[TypeSummary]:
    """Count GPUs by type, in the order of the types' names, and what their nodes have beside them.

    Nothing is free on nodes that take nothing new. A node of two types counts for both.
    """
    beside = list(nodes)
    closed = {node.name for node in beside if not takes_new(node)}
    by_type = groupby(sorted(cards, key=lambda card: (card.gpu_type, card.node)), key=lambda card: card.gpu_type)
    return [
        _summary(gpu_type, list(group), [node for node in beside if gpu_type in node.gpu_types], closed)
        for gpu_type, group in by_type
    ]


def with_closed_nodes(view: View[Gpu], nodes: Iterable[NodeOut]) -> View[Gpu]:
    """A table of GPUs one by one, in which nothing is free on nodes that take nothing new."""
    closed = {node.name: _closed_by(node) for node in nodes if not takes_new(node)}

    def of_open(words: Callable[[Gpu], str]) -> Callable[[Gpu], str]:
        return lambda card: closed.get(card.node, words(card)) if card.state is GpuState.FREE else words(card)

    columns = [replace(one, value=of_open(one.value)) if one.title == "STATE" else one for one in view.columns]
    return replace(view, columns=tuple(columns))


def _closed_by(node: NodeOut) -> str:
    """Why a node takes nothing new, in a word or two."""
    if node.fenced_at is not None:
        return "fenced"
    if node.cordoned_at is not None:
        return "cordoned"
    return "unschedulable" if node.ready else "not ready"


def _summary(gpu_type: str, cards: list[GpuOut], nodes: list[NodeOut], closed: Container[str]) -> TypeSummary:
    able = [node for node in nodes if node.name not in closed]
    free = [card for card in cards if card.state is GpuState.FREE and card.node not in closed]
    taken = [card.taken_at for card in free if card.taken_at is not None]
    staying = [card for card in free if card.taken_at is None]
    held = sum(card.state is GpuState.HELD for card in cards)
    coming = [
        card.free_at
        for card in cards
        if card.state is GpuState.HELD and card.free_at is not None and card.node not in closed
    ]
    per_node = [sum(1 for _ in group) for _, group in groupby(staying, key=lambda card: card.node)]
    return TypeSummary(
        gpu_type=gpu_type,
        total=len(cards),
        free=len(free),
        taken_soon=len(taken),
        held=held,
        unusable=len(cards) - len(free) - held,
        most_free_on_one_node=max(per_node, default=0),
        next_free_at=None if free else min(coming, default=None),
        free_until=None if staying else max(taken, default=None),
        cpus=_sum(node.cpus for node in nodes),
        cpus_free=_sum(node.cpus_free for node in able) if able else 0,
        memory_bytes=_sum(node.memory_bytes for node in nodes),
        memory_bytes_free=_sum(node.memory_bytes_free for node in able) if able else 0,
    )


def _sum(amounts: Iterable[Number | None]) -> Number | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
