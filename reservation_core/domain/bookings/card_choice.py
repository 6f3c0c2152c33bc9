"""The GPUs of a booking with a fixed time, chosen so that large gaps survive.

Preferred are the nodes with the fewest free GPUs, among those the nodes with the best-linked free GPUs. On a node: the
best-linked set, where links are known and differ, else neighbours from the shortest free run that is long enough, and
of several such those whose free time the booking fills best. Without a requested type: that with the most free GPUs.

Times are ints as in `calendar`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter

from reservation_core.domain.bookings.nouns import ChosenGpu, Wanted
from reservation_core.domain.calendar import Range, is_free_during, length_micros, merge, to_micros
from reservation_core.domain.cards.card_links import Quality, gpu_sets, quality_alike
from reservation_core.domain.cards.card_masks import bits
from reservation_core.domain.cards.link_words import Links
from reservation_core.domain.policy.rules import RuleBreach
from reservation_core.domain.similar_names import did_you_mean

SOON = timedelta(minutes=10)
"""A GPU that is unusable now is not counted on for bookings that begin within this time."""

_NAMED = 10

SLACK = length_micros(timedelta(days=1))
"""How far before and after a slot free time affects the choice."""


@dataclass(frozen=True, slots=True)
class BookableGpu:
    """One GPU: its `busy` ranges (in order, without overlap), and whether it can be booked (`available`).

    `links` are those of its node, if known. `cordoned`: an administrator wants nothing new on the node.
    """

    gpu_id: int
    node: str
    index: int
    gpu_type: str
    available: bool
    busy: Sequence[Range] = ()
    links: Links | None = None
    cordoned: bool = False


@dataclass(frozen=True, slots=True)
class LedgerGpu:
    """A GPU as the inventory and the ledger have it.

    `bookable`: its node accepts new work, and the GPU is not permanently out of use. `overrun`: a pod holds it beyond
    its time. `rows` are its open ranges in the ledger, without overlap. `links` and `cordoned` as in BookableGpu.
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


def bookable(gpus: Iterable[LedgerGpu], now: datetime) -> list[BookableGpu]:
    """The GPUs as a booking sees them: those unusable now are busy for `SOON`."""
    moment = to_micros(now)
    soon = (moment, moment + length_micros(SOON))
    return [
        BookableGpu(
            gpu.gpu_id,
            gpu.node,
            gpu.index,
            gpu.gpu_type,
            gpu.bookable,
            gpu.rows if gpu.usable_now and not gpu.overrun else merge([*gpu.rows, soon]),
            gpu.links,
            gpu.cordoned,
        )
        for gpu in gpus
    ]


def by_node(gpus: Iterable[BookableGpu], wanted: Wanted) -> dict[str, dict[str, list[BookableGpu]]]:
    """The available GPUs that fit a request, by type and node, in index order."""
    fitting = _group(
        gpu
        for gpu in gpus
        if gpu.available and wanted.gpu_type in (None, gpu.gpu_type) and wanted.node in (None, gpu.node)
    )
    for nodes in fitting.values():
        for node_gpus in nodes.values():
            node_gpus.sort(key=attrgetter("index"))
    return fitting


def choose(
    gpus: Collection[BookableGpu], wanted: Wanted, start: int, end: int, keep: Sequence[ChosenGpu] = ()
) -> tuple[ChosenGpu, ...] | None:
    """The GPUs for [start, end); None when there are not enough. `keep` is returned if all of it is available.

    `keep` must be an earlier choice for the same request.
    """
    fitting = by_node(gpus, wanted)
    if keep:
        busy = {gpu.gpu_id: gpu.busy for nodes in fitting.values() for group in nodes.values() for gpu in group}
        if all(gpu.gpu_id in busy and is_free_during(busy[gpu.gpu_id], start, end) for gpu in keep):
            return tuple(keep)
    best: tuple[int, list[list[BookableGpu]]] | None = None
    for _, nodes in sorted(fitting.items()):
        free = [[gpu for gpu in group if is_free_during(gpu.busy, start, end)] for _, group in sorted(nodes.items())]
        able_nodes = [group for group in free if len(group) >= wanted.gpus]
        count = sum(map(len, free))
        if len(able_nodes) >= wanted.nodes and (best is None or count > best[0]):
            best = (count, able_nodes)
    if best is None:
        return None
    picked = [(len(group), *_pick_joined(group, wanted.gpus, start, end)) for group in best[1]]
    picked.sort(key=lambda ranked: (*ranked[:3], ranked[3][0].node))
    chosen = sorted((ranked[3] for ranked in picked[: wanted.nodes]), key=lambda group: group[0].node)
    return tuple(ChosenGpu(gpu.gpu_id, rank) for rank, group in enumerate(chosen) for gpu in group)


def with_booked(gpus: Iterable[BookableGpu], chosen: Collection[ChosenGpu], start: int, end: int) -> list[BookableGpu]:
    """The same GPUs with `chosen` booked for [start, end)."""
    taken = {gpu.gpu_id for gpu in chosen}
    return [replace(gpu, busy=tuple(merge([*gpu.busy, (start, end)]))) if gpu.gpu_id in taken else gpu for gpu in gpus]


def never_bookable(gpus: Collection[BookableGpu], wanted: Wanted) -> RuleBreach | None:
    """Why the request never fits these GPUs, or not as they are now; None when it fits at some time."""
    if wanted.node is not None and all(gpu.node != wanted.node for gpu in gpus):
        meant = did_you_mean(wanted.node, {gpu.node for gpu in gpus})
        detail = f"There is no node {wanted.node!r} with GPUs.{meant} `gpu-dev nodes` lists the nodes."
        return RuleBreach("no_such_node", detail)
    candidates = [gpu for gpu in gpus if wanted.node in (None, gpu.node)]
    types = sorted({gpu.gpu_type for gpu in candidates})
    where = "here" if wanted.node is None else f"on {wanted.node}"
    if wanted.gpu_type is not None and wanted.gpu_type not in types:
        return RuleBreach(
            "no_such_type",
            f"There is no GPU of type {wanted.gpu_type!r} {where}"
            + (
                f"; there are: {', '.join(types)}. Choose one of these."
                if types
                else ". Ask an administrator when there will be."
            ),
        )
    if not types:
        return RuleBreach("no_such_type", "No GPUs are known here yet. Ask an administrator when there will be.")
    of_type = [gpu for gpu in candidates if wanted.gpu_type in (None, gpu.gpu_type)]
    if _able(of_type, wanted, only_available=True):
        return None
    if _able(of_type, wanted, only_available=False):
        cordoned = sorted({gpu.node for gpu in of_type if gpu.cordoned and not gpu.available})
        named = ", ".join(cordoned[:_NAMED]) + (" …" if len(cordoned) > _NAMED else "")
        return RuleBreach(
            "node_unavailable",
            "Nodes or GPUs that it needs are not available now, and their return is unknown"
            + (f" (cordoned by an administrator: {named})" if cordoned else "")
            + ". Book it when they are back (`gpu-dev nodes` says why they are away), or ask for less.",
        )
    by_type = _group(of_type)
    largest = max(len(group) for nodes in by_type.values() for group in nodes.values())
    if wanted.gpus > largest:
        return RuleBreach(
            "larger_than_any_node",
            f"It asks for {wanted.gpus} GPUs on one node, and the largest has {largest}. "
            f"Ask for at most {largest} on each of several nodes.",
        )
    able = max(sum(len(group) >= wanted.gpus for group in nodes.values()) for nodes in by_type.values())
    return RuleBreach(
        "not_enough_nodes",
        f"It asks for {wanted.nodes} nodes with {wanted.gpus} GPUs of one type each; there are {able}. Ask for fewer.",
    )


def _able(gpus: Iterable[BookableGpu], wanted: Wanted, *, only_available: bool) -> bool:
    by_type = _group(gpu for gpu in gpus if gpu.available or not only_available)
    return any(sum(len(group) >= wanted.gpus for group in nodes.values()) >= wanted.nodes for nodes in by_type.values())


def _group(gpus: Iterable[BookableGpu]) -> dict[str, dict[str, list[BookableGpu]]]:
    """The GPUs by type and node."""
    groups: dict[str, dict[str, list[BookableGpu]]] = {}
    for gpu in gpus:
        groups.setdefault(gpu.gpu_type, {}).setdefault(gpu.node, []).append(gpu)
    return groups


def _pick_joined(
    free: Sequence[BookableGpu], gpus: int, start: int, end: int
) -> tuple[Quality, int, list[BookableGpu]]:
    """Pick `gpus` of a node's free GPUs (in index order): how loosely they are linked, their free time, and which."""
    links = free[0].links
    if links is not None and free[-1].index >= len(links):
        links = None
    sets = gpu_sets(links)
    if sets is None:
        weakest, total = quality_alike(links, gpus)
        return (-weakest, -total), *_pick(free, gpus, start, end)
    mask = sum(1 << gpu.index for gpu in free)
    slack = {1 << gpu.index: _slack(gpu.busy, start, end) for gpu in free}
    around, best = min(
        ((sum(slack[bit] for bit in bits(subset)), subset) for subset in sets.best(mask, gpus)), key=itemgetter(0)
    )
    weakest, total = sets.best_quality(mask, gpus)
    return (-weakest, -total), around, [gpu for gpu in free if best >> gpu.index & 1]


def _pick(free: Sequence[BookableGpu], gpus: int, start: int, end: int) -> tuple[int, list[BookableGpu]]:
    """Pick `gpus` of a node's free GPUs (in index order), and their free time around the slot."""
    slack = [_slack(gpu.busy, start, end) for gpu in free]
    runs: list[tuple[int, int]] = []  # (length, first position)
    for position, gpu in enumerate(free):
        if position and gpu.index == free[position - 1].index + 1:
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
    # Use as few runs as possible: the longest first.
    runs.sort(key=lambda run: (-run[0], run[1]))
    positions = [at for length, first in runs for at in range(first, first + length)][:gpus]
    return sum(slack[at] for at in positions), [free[at] for at in sorted(positions)]


def _slack(busy: Iterable[Range], start: int, end: int) -> int:
    """Free time before and after a slot, each at most SLACK."""
    before = after = SLACK
    for busy_start, busy_end in busy:
        if busy_end <= start:
            before = min(before, start - busy_end)
        else:
            after = min(after, busy_start - end)
            break
    return before + after
