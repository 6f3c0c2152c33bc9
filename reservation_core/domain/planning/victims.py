"""Which preemptible jobs give their GPUs to a waiting one: of the places where it starts first, the least loss.

The loss is the GPU-time that these jobs had since they were given their GPUs. A job that gives any of its GPUs loses
all of them. One that others need already loses nothing more.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from reservation_core.domain.calendar import length_micros
from reservation_core.domain.plan import Waiting
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.pools.pool import NodeGpus, Pool
from reservation_core.domain.pools.pool_profile import Fit

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


def with_fewest_lost(picture: Picture, job: Waiting, pool: Pool, fit: Fit, instead: Mapping[int, Timeline]) -> Fit:
    """A fit at the same time as this one for which preemptible jobs lose the least."""
    preemptible = picture.ledger.preemptible
    if fit.start <= picture.at or not any(_victims_on(node, mask, preemptible) for node, mask in fit.spots):
        return fit
    profile, at = picture.pools.profiles[pool.gpu_type], picture.at
    never = picture.pools.never(pool, job)
    end = fit.start + length_micros(job.length)
    offers: list[Offer] = []
    masks: dict[int, tuple[int, dict[str, int]]] = {}
    losses: dict[str, int] = {}
    for node in pool.nodes:
        position = node.position
        if never >> position & 1 or len(node.cards) < job.gpus:
            continue
        able = (instead.get(position) or profile.timeline(position, at)).free_during(fit.start, end)
        if able.bit_count() < job.gpus:
            continue
        held = _victims_on(node, able, preemptible)
        for victim in held:
            if victim not in losses:
                losses[victim] = _loss(picture, victim, fit.start)
        free = able & ~sum(held.values())
        masks[position] = free, held
        offers.append(Offer(position, free.bit_count(), {victim: mask.bit_count() for victim, mask in held.items()}))
    choice = fewest_lost(offers, job.gpus, job.nodes, losses)
    if choice is None:
        return fit
    spots = []
    for position in choice.nodes:
        free, held = masks[position]
        node = pool.nodes[position]
        usable = free | sum(mask for victim, mask in held.items() if victim in choice.victims)
        spots.append((node, node.pick(usable, job.gpus, free)))
    return Fit(fit.start, tuple(spots))


def _victims_on(node: NodeGpus, mask: int, preemptible: set[str]) -> dict[str, int]:
    """The preemptible jobs that have some of these GPUs of a node now, and which of them."""
    found: dict[str, int] = {}
    for gpu in node.cards:
        if gpu.bit & mask:
            for _, _, held, owner in gpu.calendar.rows:
                if held and owner in preemptible:
                    found[owner] = found.get(owner, 0) | gpu.bit
    return found


def _loss(picture: Picture, victim: str, start: int) -> int:
    """What a job loses if it gives its GPUs by then; nothing if others need any of them by then."""
    ledger = picture.ledger
    rows = ledger.by_reservation[victim]
    for gpu_id, _ in rows:
        if any(row[3] != victim and row[0] <= start for row in ledger.calendar(gpu_id).rows):
            return 0
    return sum(max(0, picture.at - row[0]) for _, row in rows)
