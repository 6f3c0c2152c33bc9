"""Which preemptible jobs give their GPUs to a waiting one: of the places where it starts first, the least loss.

The loss is the GPU-time that these jobs had since they were given their GPUs. A job that gives any of its GPUs loses
all of them. One that others need already loses nothing more.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

MOST_ACROSS = 10
"""Of so many jobs with GPUs on several nodes all sets are tried; of more, those that lose least one after another."""


class Offer(NamedTuple):
    """A node: how many GPUs it has for nothing, and how many more by each job that would lose its own."""

    node: int
    free: int
    held: Mapping[str, int]


class Choice(NamedTuple):
    """The nodes to take, the jobs that lose their GPUs for it, and what these lose."""

    loss: int
    victims: frozenset[str]
    nodes: tuple[int, ...]


_Cover = list[tuple[int, frozenset[str]] | None]
"""By the number of GPUs that are missing: the least loss that brings so many, and whose it is."""


def fewest_lost(offers: Sequence[Offer], gpus: int, nodes: int, losses: Mapping[str, int]) -> Choice | None:
    """The choice with the least loss that gives `gpus` GPUs on each of `nodes` nodes; None when there is none."""
    on: dict[str, int] = {}
    for offer in offers:
        for victim in offer.held:
            on[victim] = on.get(victim, 0) + 1
    across = sorted((victim for victim, count in on.items() if count > 1), key=lambda victim: (losses[victim], victim))
    covers = [_cover(offer, gpus, losses, across) for offer in offers]
    best: Choice | None = None
    for taken in _sets(across):
        loss = sum(losses[victim] for victim in taken)
        if best is not None and loss >= best.loss:
            continue
        places: list[tuple[int, int, frozenset[str]]] = []
        for offer, cover in zip(offers, covers, strict=True):
            missing = gpus - offer.free - sum(offer.held.get(victim, 0) for victim in taken)
            found = cover[max(0, missing)]
            if found is not None:
                places.append((found[0], offer.node, found[1]))
        if len(places) < nodes:
            continue
        places.sort(key=lambda place: place[:2])
        chosen = places[:nodes]
        loss += sum(place[0] for place in chosen)
        if best is None or loss < best.loss:
            victims = frozenset(taken).union(*(place[2] for place in chosen))
            best = Choice(loss, victims, tuple(sorted(place[1] for place in chosen)))
    return best


def _sets(across: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The sets of jobs on several nodes that are tried, the empty one first."""
    if len(across) <= MOST_ACROSS:
        for count in range(len(across) + 1):
            yield from combinations(across, count)
        return
    for count in range(len(across) + 1):
        yield tuple(across[:count])


def _cover(offer: Offer, gpus: int, losses: Mapping[str, int], across: Sequence[str]) -> _Cover:
    """The least losses on one node, of jobs that have GPUs on no other."""
    cover: _Cover = [(0, frozenset()), *[None] * gpus]
    for victim, held in sorted(offer.held.items()):
        if victim in across:
            continue
        for missing in range(gpus, 0, -1):
            before = cover[max(0, missing - held)]
            now = cover[missing]
            if before is not None and (now is None or before[0] + losses[victim] < now[0]):
                cover[missing] = before[0] + losses[victim], before[1] | {victim}
    return cover
