"""Which cards a booking gets: the choice for a slot whose place in time is fixed, so that large gaps survive.

Of the nodes that can take it, those with the fewest cards free in that time, and of these those whose free cards are
joined best; on a node the set that is joined best, where that is known and makes a difference, else neighbouring cards
from the shortest free run that is long enough, and of several such those whose free time the booking fills best.
Without a type asked for, the type with the most cards free.

Times are ints as in `calendar`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter

from reservation_core.domain.bookings.nouns import ChosenCard, Wanted
from reservation_core.domain.calendar import Range, length_micros, merge, to_micros
from reservation_core.domain.cards.card_links import Quality, card_sets, quality_alike
from reservation_core.domain.cards.card_masks import bits
from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.policy.rules import RuleBreach

SOON = timedelta(minutes=10)
"""A card that can't be had at this moment is not counted on for bookings that begin within this time."""

_NAMED = 10

SLACK = length_micros(timedelta(days=1))
"""How far around a slot free time matters to the choice."""


@dataclass(frozen=True, slots=True)
class BookableCard:
    """One card: its `busy` ranges (never overlapping, in order), and whether it can be booked at all (`available`).

    `links` are those of its whole node, where they are known. `cordoned`: an administrator wants nothing new there.
    """

    gpu_id: int
    node: str
    index: int
    gpu_type: str
    available: bool
    busy: tuple[Range, ...] = ()
    links: Links | None = None
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class KnownCard:
    """A card as the inventory and the ledger have it.

    `bookable`: its node gets new work, and the card is not out of use for good. `usable_now`: it is usable at this
    moment. `overrun`: a pod holds it beyond its time. `rows` are its open ranges in the ledger, which never overlap.
    `links` are those of its whole node, where they are known. `cordoned`: an administrator wants nothing new there.
    """

    gpu_id: int
    node: str
    index: int
    gpu_type: str
    bookable: bool
    usable_now: bool
    overrun: bool
    rows: Sequence[Range]
    links: Links | None = None
    cordoned: bool = False


def bookable(cards: Iterable[KnownCard], now: datetime) -> list[BookableCard]:
    """The cards as a booking sees them: what can't be had at this moment is busy for `SOON`."""
    moment = to_micros(now)
    soon = (moment, moment + length_micros(SOON))
    return [
        BookableCard(
            card.gpu_id,
            card.node,
            card.index,
            card.gpu_type,
            card.bookable,
            tuple(sorted(card.rows) if card.usable_now and not card.overrun else merge([*card.rows, soon])),
            card.links,
            card.cordoned,
        )
        for card in cards
    ]


def by_node(cards: Iterable[BookableCard], wanted: Wanted) -> dict[str, dict[str, list[BookableCard]]]:
    """The available cards that could serve a request, by type and node, in index order."""
    found: dict[str, dict[str, list[BookableCard]]] = {}
    for card in cards:
        if not card.available or wanted.gpu_type not in (None, card.gpu_type) or wanted.node not in (None, card.node):
            continue
        found.setdefault(card.gpu_type, {}).setdefault(card.node, []).append(card)
    for nodes in found.values():
        for here in nodes.values():
            here.sort(key=attrgetter("index"))
    return found


def choose(
    cards: Collection[BookableCard], wanted: Wanted, start: int, end: int, keep: Sequence[ChosenCard] = ()
) -> tuple[ChosenCard, ...] | None:
    """The cards for [start, end); None when there are not enough. Those in `keep` are taken if all of them can be had.

    `keep` must be what such a request once got.
    """
    if keep:
        able = {card.gpu_id for nodes in by_node(cards, wanted).values() for here in nodes.values() for card in here}
        busy = {card.gpu_id: card.busy for card in cards}
        if all(card.gpu_id in able and _is_free(busy[card.gpu_id], start, end) for card in keep):
            return tuple(keep)
    best: tuple[int, list[list[BookableCard]]] | None = None
    for _, nodes in sorted(by_node(cards, wanted).items()):
        free_here = [[card for card in here if _is_free(card.busy, start, end)] for _, here in sorted(nodes.items())]
        able_nodes = [free for free in free_here if len(free) >= wanted.gpus]
        free = sum(map(len, free_here))
        if len(able_nodes) >= wanted.nodes and (best is None or free > best[0]):
            best = (free, able_nodes)
    if best is None:
        return None
    picked = [(len(free), *_pick_joined(free, wanted.gpus, start, end)) for free in best[1]]
    picked.sort(key=lambda ranked: (*ranked[:3], ranked[3][0].node))
    chosen = sorted((ranked[3] for ranked in picked[: wanted.nodes]), key=lambda here: here[0].node)
    return tuple(ChosenCard(card.gpu_id, rank) for rank, here in enumerate(chosen) for card in here)


def with_booked(
    cards: Iterable[BookableCard], chosen: Collection[ChosenCard], start: int, end: int
) -> list[BookableCard]:
    """The same cards when these are booked for [start, end)."""
    taken = {card.gpu_id for card in chosen}
    return [
        BookableCard(
            card.gpu_id,
            card.node,
            card.index,
            card.gpu_type,
            card.available,
            tuple(merge([*card.busy, (start, end)])),
            card.links,
            card.cordoned,
        )
        if card.gpu_id in taken
        else card
        for card in cards
    ]


def never_bookable(cards: Collection[BookableCard], wanted: Wanted) -> RuleBreach | None:
    """Why no time would do: what these cards could never give, or not as they are now. None when some time would."""
    if wanted.node is not None and all(card.node != wanted.node for card in cards):
        return RuleBreach("no_such_node", f"There is no node {wanted.node} with GPUs; `gpu-dev nodes` shows what is.")
    there = [card for card in cards if wanted.node in (None, card.node)]
    types = sorted({card.gpu_type for card in there})
    where = "here" if wanted.node is None else f"on {wanted.node}"
    if wanted.gpu_type is not None and wanted.gpu_type not in types:
        return RuleBreach(
            "no_such_type",
            f"There is no GPU of type {wanted.gpu_type} {where}"
            + (f"; there are: {', '.join(types)}." if types else ". Ask an operator when there will be."),
        )
    if not types:
        return RuleBreach("no_such_type", "No GPUs are known here yet. Ask an operator when there will be.")
    of_type = [card for card in there if wanted.gpu_type in (None, card.gpu_type)]
    if _able(of_type, wanted, only_available=True):
        return None
    if _able(of_type, wanted, only_available=False):
        cordoned = sorted({card.node for card in of_type if card.cordoned and not card.available})
        named = ", ".join(cordoned[:_NAMED]) + (" …" if len(cordoned) > _NAMED else "")
        return RuleBreach(
            "node_unavailable",
            "Nodes or cards that it needs can't be had now, and nobody knows until when"
            + (f" (cordoned by an administrator: {named})" if cordoned else "")
            + ". Book it when they are back (`gpu-dev nodes` says why they are away), or ask for less.",
        )
    largest = max(len(here) for nodes in _sizes(of_type).values() for here in nodes.values())
    if wanted.gpus > largest:
        return RuleBreach(
            "larger_than_any_node",
            f"It asks for {wanted.gpus} GPUs on one node, and the largest has {largest}. "
            f"Ask for at most {largest} on each of several nodes.",
        )
    able = max(sum(len(here) >= wanted.gpus for here in nodes.values()) for nodes in _sizes(of_type).values())
    return RuleBreach(
        "not_enough_nodes",
        f"It asks for {wanted.nodes} nodes with {wanted.gpus} GPUs of one type each; there are {able}. Ask for fewer.",
    )


def _able(cards: Iterable[BookableCard], wanted: Wanted, *, only_available: bool) -> bool:
    sizes = _sizes(card for card in cards if card.available or not only_available)
    return any(sum(len(here) >= wanted.gpus for here in nodes.values()) >= wanted.nodes for nodes in sizes.values())


def _sizes(cards: Iterable[BookableCard]) -> dict[str, dict[str, list[BookableCard]]]:
    found: dict[str, dict[str, list[BookableCard]]] = {}
    for card in cards:
        found.setdefault(card.gpu_type, {}).setdefault(card.node, []).append(card)
    return found


def _is_free(busy: Iterable[Range], start: int, end: int) -> bool:
    return not any(busy_start < end and start < busy_end for busy_start, busy_end in busy)


def _pick_joined(
    free: Sequence[BookableCard], gpus: int, start: int, end: int
) -> tuple[Quality, int, list[BookableCard]]:
    """Which `gpus` of a node's free cards (in index order): how loosely they are joined, their free time, and which."""
    links = free[0].links
    if links is not None and free[-1].index >= len(links):
        links = None
    sets = card_sets(links)
    if sets is None:
        weakest, total = quality_alike(links, gpus)
        return (-weakest, -total), *_pick(free, gpus, start, end)
    here = sum(1 << card.index for card in free)
    slack = {1 << card.index: _slack(card.busy, start, end) for card in free}
    around, best = min(
        ((sum(slack[bit] for bit in bits(mask)), mask) for mask in sets.best(here, gpus)), key=itemgetter(0)
    )
    weakest, total = sets.best_quality(here, gpus)
    return (-weakest, -total), around, [card for card in free if best >> card.index & 1]


def _pick(free: Sequence[BookableCard], gpus: int, start: int, end: int) -> tuple[int, list[BookableCard]]:
    """Which `gpus` of a node's free cards (in index order), and how much free time they have around the slot."""
    slack = [_slack(card.busy, start, end) for card in free]
    runs: list[tuple[int, int]] = []  # (length, first position)
    for position, card in enumerate(free):
        if position and card.index == free[position - 1].index + 1:
            runs[-1] = (runs[-1][0] + 1, runs[-1][1])
        else:
            runs.append((1, position))
    options = [
        (length, sum(slack[at : at + gpus]), at)
        for length, first in runs
        if length >= gpus
        for at in range(first, first + length - gpus + 1)
    ]
    if options:
        _, around, at = min(options)
        return around, list(free[at : at + gpus])
    # In as few pieces as can be: the longest runs first.
    runs.sort(key=lambda run: (-run[0], run[1]))
    positions = [at for length, first in runs for at in range(first, first + length)][:gpus]
    return sum(slack[at] for at in positions), [free[at] for at in sorted(positions)]


def _slack(busy: Iterable[Range], start: int, end: int) -> int:
    before = after = SLACK
    for busy_start, busy_end in busy:
        if busy_end <= start:
            before = min(before, start - busy_end)
        else:
            after = min(after, busy_start - end)
            break
    return before + after
