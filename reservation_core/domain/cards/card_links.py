"""Which cards of a node make the best set, by how they are joined.

The best set has the strongest weakest link, for that is what its members wait for when they talk to each other; among
those the most in total; and among those the one that leaves the best sets for others: no group of four is broken while
two cards of another are left. Where that is all the same, neighbouring indices decide.

Up to `EXACT` free cards every set is looked at. With more, sets are grown from single cards; the result is then never
worse joined than neighbouring indices, and not always the best.

Sets of cards are bit masks: bit i is the card with row i in `Links`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from reservation_core.domain.cards.card_masks import bits, pick_cards
from reservation_core.domain.cards.link_words import Links

EXACT = 8
"""Up to so many free cards all sets are looked at."""

_SEEDS = 16
"""From so many cards sets are grown where there are too many to look at all."""

_REMEMBERED = 65_536

Quality = tuple[int, int]
"""(the weakest link, the sum of all links) within a set."""


def best_cards(links: Links | None, free: int, gpus: int) -> int:
    """Which `gpus` of the `free` cards to take; without links, or where all are joined alike, neighbouring indices."""
    sets = card_sets(links)
    return pick_cards(free, gpus) if sets is None else sets.pick(free, gpus)


@lru_cache(maxsize=1024)
def card_sets(links: Links | None) -> "CardSets | None":
    """The sets of a node's cards; None where it makes no difference which are together. One for all nodes alike."""
    if links is None or len({link for one, row in enumerate(links) for link in row[:one]}) < 2:
        return None
    return CardSets(links)


def quality_alike(links: Links | None, gpus: int) -> Quality:
    """How well any `gpus` cards are joined where it makes no difference which; the least where nobody says how."""
    link = links[0][1] if links is not None and len(links) > 1 and gpus > 1 else 0
    return link, link * (gpus * (gpus - 1) // 2)


def links_between(links: Links | None, indices: Sequence[int], numbers: Sequence[int]) -> Links | None:
    """Links by other numbers: those of the cards with these `indices`, which are called by these `numbers` instead.

    None where the links do not speak of all these cards. What has no card is joined with nothing.
    """
    if links is None or max(indices, default=-1) >= len(links):
        return None
    if list(indices) == list(numbers) == list(range(len(links))):
        return links
    index_of = dict(zip(numbers, indices, strict=True))
    size = max(numbers, default=-1) + 1
    return tuple(
        tuple(
            links[index_of[one]][index_of[other]] if one in index_of and other in index_of else 0
            for other in range(size)
        )
        for one in range(size)
    )


class CardSets:
    """Sets of the cards of one topology, and which of them are best; remembers its answers."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._tables: dict[tuple[int, ...], _Tables] = {}
        self._best: dict[tuple[int, int], tuple[Quality, tuple[int, ...]]] = {}

    def pick(self, free: int, gpus: int, preferred: int = 0) -> int:
        """Which `gpus` of the `free` cards to take; of sets that are joined alike, one with most `preferred` cards.

        `gpus` must be at least 1 and no more than there are free.
        """
        best = self.best(free, gpus)
        if not preferred or len(best) == 1:
            return best[0]
        return max(best, key=lambda chosen: (chosen & preferred).bit_count())

    def best(self, free: int, gpus: int) -> tuple[int, ...]:
        """All sets of so many free cards that are joined best, those that leave the best sets first."""
        return self._best_of(free, gpus)[1]

    def best_quality(self, free: int, gpus: int) -> Quality:
        """How well the set is joined that `pick` chooses."""
        return self._best_of(free, gpus)[0]

    def quality(self, cards: int) -> Quality:
        """How well these cards are joined."""
        positions = [bit.bit_length() - 1 for bit in bits(cards)]
        found = [self._links[one][other] for one, other in combinations(positions, 2)]
        return (min(found), sum(found)) if found else (0, 0)

    def _best_of(self, free: int, gpus: int) -> tuple[Quality, tuple[int, ...]]:
        best = self._best.get((free, gpus))
        if best is None:
            if len(self._best) >= _REMEMBERED:
                self._best.clear()
            found = self._find(free, gpus)
            best = self._best[free, gpus] = self.quality(found[0]), found
        return best

    def _find(self, free: int, gpus: int) -> tuple[int, ...]:
        if len(self._links) <= EXACT:
            return self._among_all(tuple(1 << number for number in range(len(self._links))), free, gpus)
        if free.bit_count() <= EXACT:
            return self._among_all(tuple(bits(free)), free, gpus)
        return self._among_grown(free, gpus)

    def _among_all(self, cards: tuple[int, ...], free: int, gpus: int) -> tuple[int, ...]:
        tables = self._tables.get(cards)
        if tables is None:
            if len(self._tables) >= 256:
                self._tables.clear()
            tables = self._tables[cards] = _tables_of(self._links, cards)
        here = sum(1 << number for number, card in enumerate(cards) if card & free)
        able = [subset for subset in _subsets(here) if subset.bit_count() == gpus]
        best = max(tables.quality[subset] for subset in able)
        found = [subset for subset in able if tables.quality[subset] == best]
        found.sort(key=lambda subset: (-tables.worth[here ^ subset], *_shape(tables.masks[subset], free)))
        return tuple(tables.masks[subset] for subset in found)

    def _among_grown(self, free: int, gpus: int) -> tuple[int, ...]:
        positions = [bit.bit_length() - 1 for bit in bits(free)]
        together = {one: sum(self._links[one][other] for other in positions) for one in positions}
        seeds = sorted(positions, key=lambda one: (-together[one], one))
        # Of cards that are all joined as well, some of each end of the row: groups are mostly neighbours.
        seeds = seeds[: _SEEDS // 2] + seeds[-_SEEDS // 2 :]
        grown = {self._grown(seed, positions, gpus) for seed in seeds} | {pick_cards(free, gpus)}
        rated = {cards: self.quality(cards) for cards in grown}
        best = max(rated.values())
        found = [cards for cards in grown if rated[cards] == best]
        found.sort(key=lambda cards: (-self.quality(free & ~cards)[1], *_shape(cards, free)))
        return tuple(found)

    def _grown(self, seed: int, positions: Iterable[int], gpus: int) -> int:
        """A set that grows from one card, always by the card that is joined best with all that are in."""
        rest = [position for position in positions if position != seed]
        weakest = {position: self._links[seed][position] for position in rest}
        total = dict(weakest)
        # The card joined least with those left out is missed least by them.
        outside = {position: sum(self._links[position][other] for other in rest) for position in rest}
        chosen = 1 << seed
        for _ in range(gpus - 1):
            best = max(rest, key=lambda position: (weakest[position], total[position], -outside[position], -position))
            rest.remove(best)
            chosen |= 1 << best
            for position in rest:
                link = self._links[best][position]
                weakest[position] = min(weakest[position], link)
                total[position] += link
                outside[position] -= link
        return chosen


@dataclass(frozen=True, slots=True)
class _Tables:
    """For each set of at most `EXACT` cards, numbered from 0 on: its real mask, how it is joined, what it is worth.

    What a set is worth to others: for each number of cards, the weakest link of the best set of so many, all together.
    """

    masks: list[int]
    quality: list[Quality]
    worth: list[int]


def _tables_of(links: Links, cards: Sequence[int]) -> _Tables:
    positions = [card.bit_length() - 1 for card in cards]
    masks = [0]
    quality: list[Quality] = [(0, 0)]
    for members in range(1, 1 << len(cards)):
        last = members.bit_length() - 1
        before = members ^ (1 << last)
        masks.append(masks[before] | cards[last])
        met = [links[positions[last]][positions[bit.bit_length() - 1]] for bit in bits(before)]
        weakest, total = quality[before]
        if not met:
            quality.append((0, 0))
        else:
            quality.append((min(met) if len(met) == 1 else min(weakest, *met), total + sum(met)))
    strongest: list[list[int]] = []
    for members in range(1 << len(cards)):
        found = [0] * (len(cards) + 1)
        for bit in bits(members):
            found = [max(pair) for pair in zip(found, strongest[members ^ bit], strict=True)]
        found[members.bit_count()] = quality[members][0]
        strongest.append(found)
    return _Tables(masks, quality, [sum(strengths) for strengths in strongest])


def _subsets(members: int) -> Iterator[int]:
    """All subsets of a set but the empty one."""
    subset = members
    while subset:
        yield subset
        subset = (subset - 1) & members


def _shape(chosen: int, free: int) -> tuple[int, int, int]:
    """The fewest pieces, then the fewest pieces left, then the lowest indices."""
    return _pieces(chosen), _pieces(free & ~chosen), chosen


def _pieces(mask: int) -> int:
    return (mask & ~(mask << 1)).bit_count()
