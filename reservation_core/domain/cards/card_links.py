"""Which set of GPUs on a node is best, by how they are linked.

The best set has the strongest weakest link, since its members wait for that when they communicate; then the highest
total; then it leaves the best sets for others: no group of four is broken while two GPUs of another are left. Ties go
to neighbouring indices.

Up to `EXACT` free GPUs all sets are compared. With more, sets are grown from single GPUs; the result is then never
worse than neighbouring indices, but not always the best.

Sets of GPUs are bit masks: bit i is the GPU with row i in `Links`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from reservation_core.domain.cards.card_masks import bits, pick_gpus
from reservation_core.domain.cards.link_words import Links

EXACT = 8
"""Up to this many free GPUs all sets are compared."""

_SEEDS = 16
"""How many GPUs sets are grown from where comparing all is too much."""

_REMEMBERED = 65_536

Quality = tuple[int, int]
"""(the weakest link, the sum of all links) within a set."""


def best_gpus(links: Links | None, free: int, gpus: int) -> int:
    """Pick `gpus` of the `free` GPUs; without links, or with equal ones, neighbouring indices."""
    sets = gpu_sets(links)
    return pick_gpus(free, gpus) if sets is None else sets.pick(free, gpus)


@lru_cache(maxsize=1024)
def gpu_sets(links: Links | None) -> "GpuSets | None":
    """The sets of a node's GPUs, shared by all equal nodes; None where all sets are equal."""
    if links is None or len({link for one, row in enumerate(links) for link in row[:one]}) < 2:
        return None
    return GpuSets(links)


def quality_alike(links: Links | None, gpus: int) -> Quality:
    """How well any `gpus` GPUs are linked where all sets are equal; the least where links are unknown."""
    link = links[0][1] if links is not None and len(links) > 1 and gpus > 1 else 0
    return link, link * (gpus * (gpus - 1) // 2)


def links_between(links: Links | None, indices: Sequence[int], numbers: Sequence[int]) -> Links | None:
    """Renumber links: the GPUs with these `indices` get these `numbers`.

    None where the links lack one of these GPUs. Numbers without a GPU are linked with nothing.
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


class GpuSets:
    """Sets of the GPUs of one topology, ranked; remembers its results."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._tables: dict[tuple[int, ...], _Tables] = {}
        self._best: dict[tuple[int, int], tuple[Quality, tuple[int, ...]]] = {}

    def pick(self, free: int, gpus: int, preferred: int = 0) -> int:
        """Pick `gpus` of the `free` GPUs; of equally linked sets, one with most `preferred` GPUs.

        `gpus` must be at least 1 and at most the number of free ones.
        """
        best = self.best(free, gpus)
        if not preferred or len(best) == 1:
            return best[0]
        return max(best, key=lambda chosen: (chosen & preferred).bit_count())

    def best(self, free: int, gpus: int) -> tuple[int, ...]:
        """All best-linked sets of this many free GPUs, first those that leave the best sets to others."""
        return self._rank(free, gpus)[1]

    def best_quality(self, free: int, gpus: int) -> Quality:
        """How well the set that `pick` chooses is linked."""
        return self._rank(free, gpus)[0]

    def quality(self, gpus: int) -> Quality:
        """How well these GPUs are linked."""
        positions = [bit.bit_length() - 1 for bit in bits(gpus)]
        links = [self._links[one][other] for one, other in combinations(positions, 2)]
        return (min(links), sum(links)) if links else (0, 0)

    def _rank(self, free: int, gpus: int) -> tuple[Quality, tuple[int, ...]]:
        best = self._best.get((free, gpus))
        if best is None:
            if len(self._best) >= _REMEMBERED:
                self._best.clear()
            sets = self._find(free, gpus)
            best = self._best[free, gpus] = self.quality(sets[0]), sets
        return best

    def _find(self, free: int, gpus: int) -> tuple[int, ...]:
        if len(self._links) <= EXACT:
            return self._compare_all(tuple(1 << number for number in range(len(self._links))), free, gpus)
        if free.bit_count() <= EXACT:
            return self._compare_all(tuple(bits(free)), free, gpus)
        return self._compare_grown(free, gpus)

    def _compare_all(self, cards: tuple[int, ...], free: int, gpus: int) -> tuple[int, ...]:
        tables = self._tables.get(cards)
        if tables is None:
            if len(self._tables) >= 256:
                self._tables.clear()
            tables = self._tables[cards] = _tables_of(self._links, cards)
        members = sum(1 << number for number, card in enumerate(cards) if card & free)
        able = [subset for subset in _subsets(members) if subset.bit_count() == gpus]
        quality = max(tables.quality[subset] for subset in able)
        best = [subset for subset in able if tables.quality[subset] == quality]
        best.sort(key=lambda subset: (-tables.worth[members ^ subset], *_shape(tables.masks[subset], free)))
        return tuple(tables.masks[subset] for subset in best)

    def _compare_grown(self, free: int, gpus: int) -> tuple[int, ...]:
        positions = [bit.bit_length() - 1 for bit in bits(free)]
        together = {one: sum(self._links[one][other] for other in positions) for one in positions}
        seeds = sorted(positions, key=lambda one: (-together[one], one))
        # Of equally linked GPUs take some from each end: groups are mostly neighbours.
        seeds = seeds[: _SEEDS // 2] + seeds[-_SEEDS // 2 :]
        grown = {self._grow(seed, positions, gpus) for seed in seeds} | {pick_gpus(free, gpus)}
        rated = {cards: self.quality(cards) for cards in grown}
        quality = max(rated.values())
        best = [cards for cards in grown if rated[cards] == quality]
        best.sort(key=lambda cards: (-self.quality(free & ~cards)[1], *_shape(cards, free)))
        return tuple(best)

    def _grow(self, seed: int, positions: Iterable[int], gpus: int) -> int:
        """Grow a set from one GPU, each time by the GPU that is linked best with all members."""
        rest = [position for position in positions if position != seed]
        weakest = {position: self._links[seed][position] for position in rest}
        total = dict(weakest)
        # Prefer the GPU with the weakest links to those left out: they lose the least.
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
    """For each set of at most `EXACT` GPUs, numbered from 0: its real mask, how it is linked, and its worth.

    A set's worth to others: the weakest link of its best subset of each size, summed over the sizes.
    """

    masks: list[int]
    quality: list[Quality]
    worth: list[int]


def _tables_of(links: Links, gpus: Sequence[int]) -> _Tables:
    positions = [gpu.bit_length() - 1 for gpu in gpus]
    masks = [0]
    quality: list[Quality] = [(0, 0)]
    for members in range(1, 1 << len(gpus)):
        last = members.bit_length() - 1
        before = members ^ (1 << last)
        masks.append(masks[before] | gpus[last])
        links_to_last = [links[positions[last]][positions[bit.bit_length() - 1]] for bit in bits(before)]
        weakest, total = quality[before]
        if not links_to_last:
            quality.append((0, 0))
        else:
            links_within = links_to_last if len(links_to_last) == 1 else [weakest, *links_to_last]
            quality.append((min(links_within), total + sum(links_to_last)))
    strongest: list[list[int]] = []
    for members in range(1 << len(gpus)):
        strengths = [0] * (len(gpus) + 1)
        for bit in bits(members):
            strengths = [max(pair) for pair in zip(strengths, strongest[members ^ bit], strict=True)]
        strengths[members.bit_count()] = quality[members][0]
        strongest.append(strengths)
    return _Tables(masks, quality, [sum(strengths) for strengths in strongest])


def _subsets(members: int) -> Iterator[int]:
    """All subsets but the empty one."""
    subset = members
    while subset:
        yield subset
        subset = (subset - 1) & members


def _shape(chosen: int, free: int) -> tuple[int, int, int]:
    """A sort key: the fewest pieces, then the fewest pieces left, then the lowest indices."""
    return _pieces(chosen), _pieces(free & ~chosen), chosen


def _pieces(mask: int) -> int:
    return (mask & ~(mask << 1)).bit_count()
