"""The rows of the calendar: types, nodes or GPUs, in pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from reservation_core.domain.bookings.card_choice import BookableGpu

_MOST_CARDS_AT_FIRST, _MOST_NODES_AT_FIRST = 16, 24


class By(StrEnum):
    """What a row stands for."""

    TYPE = "type"
    NODE = "node"
    CARD = "card"


@dataclass(frozen=True, slots=True)
class Row:
    """One row: `id` names it on the page and in addresses, `detail` describes its GPUs.

    `ranges` is the number of busy ranges to draw.
    """

    id: str
    title: str
    detail: str
    gpu_type: str
    node: str | None
    cards: tuple[BookableGpu, ...]
    ranges: int


@dataclass(frozen=True, slots=True)
class RowPage:
    """One page of `total` rows; `number` counts from 1."""

    rows: tuple[Row, ...]
    number: int
    pages: int
    total: int


def usual_rows(cards: Sequence[BookableGpu]) -> By:
    """The default rows: as fine as is readable."""
    if len(cards) <= _MOST_CARDS_AT_FIRST:
        return By.CARD
    return By.NODE if len({card.node for card in cards}) <= _MOST_NODES_AT_FIRST else By.TYPE


def rows_of(cards: Iterable[BookableGpu], by: By) -> list[Row]:
    groups: dict[tuple[str, int], list[BookableGpu]] = {}
    for card in sorted(cards, key=lambda place: (place.node, place.index)):
        match by:
            case By.TYPE:
                key = (card.gpu_type, 0)
            case By.NODE:
                key = (card.node, 0)
            case By.CARD:
                key = (card.node, card.index)
            case _:
                assert_never(by)
        groups.setdefault(key, []).append(card)
    return [_row(by, here) for _, here in sorted(groups.items())]


def _row(by: By, cards: list[BookableGpu]) -> Row:
    first = cards[0]
    types = ", ".join(sorted({card.gpu_type for card in cards}))
    ranges = sum(len(card.busy) for card in cards)
    match by:
        case By.TYPE:
            nodes = len({card.node for card in cards})
            detail = f"{_counted(len(cards), 'GPU')} on {_counted(nodes, 'node')}"
            return Row(first.gpu_type, first.gpu_type, detail, first.gpu_type, None, tuple(cards), ranges)
        case By.NODE:
            detail = f"{len(cards)} × {types}"
            return Row(first.node, first.node, detail, first.gpu_type, first.node, tuple(cards), ranges)
        case By.CARD:
            title = f"{first.node} / {first.index}"
            detail = types if first.available else "out of use"
            return Row(f"{first.node}/{first.index}", title, detail, first.gpu_type, first.node, tuple(cards), ranges)
        case _:
            assert_never(by)


def page_of(rows: Sequence[Row], by: By, wanted: int) -> RowPage:
    """One page of rows; the last one if `wanted` is too large."""
    size = {By.TYPE: 40, By.NODE: 12, By.CARD: 32}[by]
    pages = max(1, -(-len(rows) // size))
    number = min(max(wanted, 1), pages)
    return RowPage(tuple(rows[(number - 1) * size : number * size]), number, pages, len(rows))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
