"""Making room: a job starts now where others have slots later, if none of them loses its promised start.

A slot says where a job will be at the latest, and its promise when. As long as each job whose slot is in the way finds
another place no later than it was promised, a small job need not wait for it. Jobs on the nodes concerned are placed
anew in the order of their slots. Where a project's order is that of arrival, its jobs neither make room nor are given
any. Nor is room made for jobs that ask for CPUs or memory, or on nodes with such jobs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from reservation_core.domain.calendar import FOREVER, Row, length_micros
from reservation_core.domain.plan import PlannedSlot, Waiting
from reservation_core.domain.planning.gpu_pools import Marks
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.pools.least_loss import Offer, fewest_lost
from reservation_core.domain.pools.node_timeline import Timeline
from reservation_core.domain.pools.pool import NodeGpus, Pool
from reservation_core.domain.pools.pool_profile import Fit

MOST_MOVED = 64
"""How many jobs are placed anew so that one can start."""

MOST_TRIES = 30
"""How many tries may come to nothing until something is given back again."""

MOST_NODES = 64
"""On how many nodes with enough free GPUs a place is looked for, beginning with those that have least."""

MOST_COMPARED = 64
"""With how many other nodes those of a fit are compared for what preemptible jobs would lose there."""

Find = Callable[[Waiting, int], tuple[Pool, Fit] | None]
"""The earliest fit, before a time, of a job that is nowhere in the calendar."""

Write = Callable[[Waiting, Pool, Fit], PlannedSlot]
"""Writes a fit into the picture."""


@dataclass(frozen=True, slots=True)
class _Room:
    """GPUs that are free now, and the jobs that have slots on them."""

    fit: Fit
    owners: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Before:
    """The rows and marks to put back when it comes to nothing."""

    rows: dict[str, tuple[tuple[int, Row], ...]]
    marks: Marks


def room_length(picture: Picture, job: Waiting) -> int:
    """The length from which on no job of this shape is given room now; 0 if it is not worth a try. A quick look."""
    walk, pools = picture.walk, picture.pools
    if walk.tries >= MOST_TRIES or not pools.has_room(job, pools.for_job(job)):
        return 0
    return walk.too_long.get((job.gpu_type, job.shape), FOREVER)


def may_have_room(picture: Picture, job: Waiting) -> bool:
    """Whether others may make room for a job, if it is not too long."""
    return job.id not in picture.queue.held and job.share is None and picture.queue.is_by_area(job)


class RoomMaker:
    """Makes room at one time. `find` and `write` are those of the search for slots."""

    def __init__(self, picture: Picture, at: int, find: Find, write: Write) -> None:
        self._picture = picture
        self._at = at
        self._find = find
        self._write = write

    def start_now(self, job: Waiting) -> list[PlannedSlot]:
        """A slot from now on for a job with a later one, and those of the jobs that make room; none if it can't be."""
        picture = self._picture
        length = length_micros(job.length)
        if not may_have_room(picture, job) or length >= room_length(picture, job):
            return []
        for pool in picture.pools.for_job(job):
            never = picture.pools.never(pool, job) | picture.pools.shares.asked_on(pool)
            if pool.has_room(job.gpus, job.nodes, never) and picture.within_quotas(
                job, pool.gpu_type, self._at, length
            ):
                room = self._choose(job, pool, never)
                slots = [] if room is None else self._take(job, pool, room)
                if slots:
                    return slots
        picture.walk.note_vain_try(job, length)
        return []

    def _choose(self, job: Waiting, pool: Pool, never: int) -> _Room | None:
        """GPUs that are free now, where as few jobs as can be have slots, all of which may be moved."""
        end = self._at + length_micros(job.length)
        found: list[tuple[int, int, NodeGpus, int, frozenset[str]]] = []
        for node in islice(pool.with_free(job.gpus, never), MOST_NODES):
            open_gpus = self._open_gpus(job, node, end)
            if len(open_gpus) >= job.gpus:
                untouched = sum(bit for bit, owners in open_gpus.items() if not owners)
                mask = node.pick(sum(open_gpus), job.gpus, untouched)
                owners = frozenset().union(*(open_gpus[bit] for bit in open_gpus if bit & mask))
                found.append((len(owners), node.free.bit_count(), node, mask, owners))
        if len(found) < job.nodes:
            return None
        places = sorted(found, key=lambda place: (*place[:2], place[2].position))[: job.nodes]
        owners = frozenset().union(*(place[4] for place in places))
        if len(owners) > MOST_MOVED:
            return None
        spots = sorted(((node, mask) for *_, node, mask, _ in places), key=lambda spot: spot[0].position)
        return _Room(Fit(self._at, tuple(spots)), owners)

    def _open_gpus(self, job: Waiting, node: NodeGpus, end: int) -> dict[int, frozenset[str]]:
        """The free GPUs of a node, by bit, that nobody has until `end` but waiting jobs; and which jobs these are."""
        answer: dict[int, frozenset[str]] = {}
        for gpu in node.cards:
            if gpu.bit & node.free:
                rows = gpu.calendar.rows
                owners = frozenset([row[3] for row in rows if row[0] < end and row[1] > self._at]) - {job.id}
                if all(map(self._may_move, owners)):
                    answer[gpu.bit] = owners
        return answer

    def _may_move(self, job_id: str) -> bool:
        """Whether this is a waiting job with a slot to come, in a project whose jobs are ordered by area.

        A slot that the slot of a dependant follows stays where it is.
        """
        queue, due = self._picture.queue, self._picture.ledger.due
        return (
            job_id in queue.slotted
            and job_id not in due
            and queue.is_by_area(queue.jobs[job_id])
            and not self._picture.is_followed(job_id)
        )

    def _movers(self, job: Waiting, pool: Pool, room: _Room) -> list[Waiting]:
        """The jobs to place anew, in the order of their slots: those in the way, and some beside them on the nodes."""
        ledger, pools, queue = self._picture.ledger, self._picture.pools, self._picture.queue
        positions = {node.position for node, _ in room.fit.spots}
        positions.update(*(pools.positions_of(ledger.by_reservation[owner]) for owner in room.owners))
        cards = [gpu for position in positions for gpu in pool.nodes[position].cards]
        beside = {row[3] for gpu in cards for row in gpu.calendar.rows} - room.owners - {job.id}
        by_slot = sorted(filter(self._may_move, beside), key=lambda job_id: (ledger.slots[job_id], job_id))
        moved = {*room.owners, *by_slot[: MOST_MOVED - len(room.owners)]}
        return [queue.jobs[job_id] for job_id in sorted(moved, key=lambda job_id: (ledger.slots[job_id], job_id))]

    def _take(self, job: Waiting, pool: Pool, room: _Room) -> list[PlannedSlot]:
        picture = self._picture
        movers = self._movers(job, pool, room)
        before = _Before(
            {moved.id: picture.ledger.by_reservation[moved.id] for moved in (job, *movers)},
            picture.pools.marks(),
        )
        latest = [self._latest(moved, job) for moved in movers]
        for moved in (job, *movers):
            picture.clear_slot_rows(moved.id)
        picture.pools.refresh(self._at)
        slots = [self._write(job, pool, room.fit)]
        for moved, limit in zip(movers, latest, strict=True):
            place = self._find(moved, limit + 1)
            if place is None:
                self._put_back(before)
                return []
            slots.append(self._write(moved, *place))
        return slots

    def _latest(self, mover: Waiting, job: Waiting) -> int:
        """The latest start that a mover may be given: its promise; that of its slot if it is late already, or ahead."""
        queue, start = self._picture.queue, self._picture.ledger.slots[mover.id][0]
        return start if queue.order(mover) < queue.order(job) else max(start, queue.promises.get(mover.id, start))

    def _put_back(self, before: _Before) -> None:
        picture = self._picture
        for job_id in before.rows:
            picture.drop_slot(job_id)
        for job_id, rows in before.rows.items():
            picture.pools.mark_changed(picture.ledger.set_rows(job_id, rows, planned=True), freed=True)
            picture.claim_slot(job_id)
        picture.pools.refresh(self._at)
        picture.pools.restore(before.marks)


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
    own = [node for node, _ in fit.spots]
    taken = {node.position for node in own}
    for node in chain(own, (node for node in pool.nodes if node.position not in taken)):
        if len(offers) == len(own) + MOST_COMPARED:
            break
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
