"""Nodes, the pods on them with the cards that they have, and promised cards: what is free, kept up to date.

A pod that is bound counts where it is. One that was decided on counts from then on, until it is seen bound, or gone, or
its bind has failed.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from pod_scheduling.domain.extender.asked_cards import AskedCards
from pod_scheduling.domain.extender.card_footprints import Footprint, FreeOnNode, Taken, lay_out
from pod_scheduling.domain.extender.model_usage import UNSEEN, Model, ModelUsage
from pod_scheduling.domain.extender.owner_quotas import OwnedPod, OwnerQuotas
from pod_scheduling.domain.maps.map_placement import ReservedCards
from pod_scheduling.domain.placement.fleet import Fleet, Positions
from pod_scheduling.domain.placement.tasks import WHOLE, NodeShape, Spot, Task


@dataclass(frozen=True, slots=True)
class CardNode:
    """A node's cards. `plugin_cards` are given by a device plugin, `share_cards` by gpu-manager and the like.

    Processor time in thousandths of cores, memory in MiB, `card_memory` in units on each card.
    """

    name: str
    model: Model
    pool: str = ""
    plugin_cards: int = 0
    share_cards: int = 0
    card_memory: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    links: tuple[tuple[int, ...], ...] | None = None

    @property
    def cards(self) -> int:
        """The number of cards, of a device plugin or in shares."""
        return max(self.plugin_cards, self.share_cards)

    @property
    def shape(self) -> NodeShape:
        """The node for placement policies."""
        return NodeShape(
            self.name, self.cpu_milli, self.memory_mib, self.cards, self.model.gpu_type, self.card_memory, self.links
        )


@dataclass(frozen=True, slots=True)
class CardPod:
    """The part of a pod that counts. `booking_id`, `ends_at` (UTC) and `owner` count only where bookings are enforced.

    `has_preferences`: of the nodes that would do it prefers some, for reasons that are not cards. `scheduler`: by name.
    """

    uid: str
    namespace: str
    name: str
    asked: AskedCards
    cpu_milli: int = 0
    memory_mib: int = 0
    booking_id: str | None = None
    ends_at: datetime | None = None
    owner: str | None = None
    has_preferences: bool = False
    scheduler: str = ""

    @property
    def owned(self) -> OwnedPod:
        return OwnedPod(self.uid, self.namespace, self.owner, booked=self.booking_id is not None)


@dataclass(slots=True)
class _Held:
    pod: CardPod
    node: str
    footprint: Footprint | None
    bound: bool
    keys: int = 0
    laid_out: Footprint | None = None
    """What the fleet knows of it; None: nothing yet, or of a node that was another one."""


class LeftOnNode(NamedTuple):
    """Capacity left on a node: cards of which nobody has anything, thousandths of the card that has most free, and
    units of memory on the card that has most of it, of those with room for the share that was asked for."""

    whole: int
    most: int
    roomy: int


class CardsInUse:
    """Cards of one cluster. `usage` counts models by namespace; `fleet` shows what is free, once settled."""

    def __init__(self, usage: ModelUsage) -> None:
        self.usage = usage
        self.owners = OwnerQuotas()
        self.fleet = Fleet()
        self.nodes: dict[str, CardNode] = {}
        self.kind_at: Positions = np.zeros(0, np.intp)
        """By position in the fleet: the number of a node's kind. Nodes of one kind differ in nothing that quotas and
        requests look at."""
        self.kinds: list[CardNode] = []
        """One node of each kind that there has been."""
        self.reserved: ReservedCards = {}
        self._held: dict[str, _Held] = {}
        self._on_node: dict[str, dict[str, _Held]] = {}
        self._enforced: set[str] = set()
        self._kinds: dict[tuple[Model, str, int, int, int], int] = {}
        self._blocked: dict[str, int] = {}
        self._unsettled: set[str] = set()
        self._left: set[str] = set()
        """Nodes that somebody has left since they were settled: what is free there may be theirs who had too little."""

    def put_node(self, node: CardNode) -> None:
        """Add or update a node."""
        if self.nodes.get(node.name) == node:
            return
        self.nodes[node.name] = node
        kind = (node.model, node.pool, node.plugin_cards, node.share_cards, node.card_memory)
        number = self._kinds.setdefault(kind, len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(node)
        self.fleet.put(node.shape)
        more = len(self.fleet.alive) - len(self.kind_at)
        if more:
            self.kind_at = np.concatenate([self.kind_at, np.zeros(more, np.intp)])
        self.kind_at[self.fleet.positions[node.name]] = number
        self._unsettled.add(node.name)
        for uid, held in self._on_node.get(node.name, {}).items():
            held.laid_out = None
            self._count(uid, held)

    def drop_node(self, name: str) -> None:
        """Remove a node. Its pods count until they are gone as well."""
        if self.nodes.pop(name, None) is not None:
            self.fleet.drop(name)

    def put_bound(self, pod: CardPod, node: str, footprint: Footprint | None) -> None:
        """Count a pod that runs on a node; `footprint` None: its cards are not known."""
        former = self._held.get(pod.uid)
        if footprint is None and former is not None and former.node == node:
            footprint = former.footprint  # as it was decided here
        self._hold(_Held(pod, node, footprint, bound=True))

    def assume(self, pod: CardPod, node: str, footprint: Footprint | None) -> None:
        """Count a pod that is about to be bound. A bound pod stays as it is."""
        former = self._held.get(pod.uid)
        if former is None or not former.bound:
            self._hold(_Held(pod, node, footprint, bound=False))

    def drop_assumed(self, uid: str) -> None:
        """Stop counting an assumed pod. A bound pod stays."""
        held = self._held.get(uid)
        if held is not None and not held.bound:
            self.drop_pod(uid)

    def drop_pod(self, uid: str) -> None:
        """Stop counting a pod that is gone or has ended."""
        self.usage.leave(uid)
        self.usage.drop_claim(uid)
        self.owners.leave(uid)
        held = self._held.pop(uid, None)
        if held is not None:
            self._take_off(uid, held)

    def claim(self, pod: CardPod, models: Collection[Model], until_s: float) -> None:
        """Count a pod against quotas of these models until it is on a node, or until `until_s`."""
        milli = pod.asked.milli if models else 0
        self.usage.claim(pod.uid, pod.namespace, models, milli, until_s)
        self.owners.claim(pod.owned, models, milli, until_s)

    def drop_claim(self, uid: str) -> None:
        """Drop the claim of a pod."""
        self.usage.drop_claim(uid)
        self.owners.drop_claim(uid)

    def end_claims(self, now_s: float) -> None:
        """Drop expired claims."""
        self.usage.end_claims(now_s)
        self.owners.end_claims(now_s)

    def holds(self, uid: str) -> bool:
        return uid in self._held

    def node_of(self, uid: str) -> str | None:
        """The node that a pod is on, or is assumed on."""
        held = self._held.get(uid)
        return None if held is None else held.node

    def is_bound(self, uid: str) -> bool:
        """Whether a pod was seen on a node."""
        held = self._held.get(uid)
        return held is not None and held.bound

    def enforce(self, namespace: str, *, enforced: bool) -> None:
        """Set whether bookings are enforced in a namespace: only there do pods' booking annotations count."""
        (self._enforced.add if enforced else self._enforced.discard)(namespace)
        self.owners.enforce(namespace, enforced=enforced)
        self._unsettled |= {held.node for held in self._held.values() if held.pod.namespace == namespace}

    def reserve(self, reserved: ReservedCards) -> None:
        """Set the ledger's promised cards, by node and card."""
        before, self.reserved = self.reserved, reserved
        self._unsettled |= {node for node in {*before, *reserved} if before.get(node) != reserved.get(node)}

    def free_for(self, pod: CardPod, node: CardNode) -> FreeOnNode:
        """Free capacity of a node's cards for this pod: without itself, and with what its booking has promised."""
        exempt = self._exempt(pod, node.name)
        if pod.uid in self._on_node.get(node.name, {}) or exempt:
            return self._laid_out(node, but_for=pod.uid, exempt=exempt)[0]
        position = self.fleet.position(node.name)
        count = node.cards
        return FreeOnNode(
            self.fleet.milli_free[position, :count].tolist(),
            self.fleet.card_memory_free[position, :count].tolist(),
            node.card_memory,
        )

    def left_at(self, at: Positions, share: int) -> Iterator[tuple[int, int, int]]:
        """`LeftOnNode` as tuples for the nodes at these positions, for a pod that is on no node, has nothing promised
        and asks for so many thousandths of a card. Settle first."""
        milli = self.fleet.milli_free[at]
        roomy = np.where(milli >= share, self.fleet.card_memory_free[at], 0)
        return zip(
            self.fleet.whole_free[at].tolist(), milli.max(axis=1).tolist(), roomy.max(axis=1).tolist(), strict=True
        )

    def _exempt(self, pod: CardPod, node: str) -> set[int]:
        """Cards whose promises do not matter to a pod: of its own booking, or for later than its end."""
        if pod.namespace not in self._enforced or (pod.booking_id is None and pod.ends_at is None):
            return set()
        return {
            index
            for index, reserved in self.reserved.get(node, {}).items()
            if all(
                card.reservation_id == pod.booking_id or (pod.ends_at is not None and card.starts_at >= pod.ends_at)
                for card in reserved
            )
        }

    def settle(self) -> None:
        """Bring the fleet up to date."""
        while self._unsettled:
            name = self._unsettled.pop()
            node = self.nodes.get(name)
            if node is not None:
                self._lay_out_anew(node)
            self._left.discard(name)

    def _lay_out_anew(self, node: CardNode) -> None:
        there = self._on_node.get(node.name, {})
        new = [uid for uid, held in there.items() if held.laid_out is None]
        if len(new) == 1 and not there[new[0]].keys and self._put_beside(new[0], node):
            return
        footprints = self._laid_out(node)[1]
        for uid, held in there.items():
            footprint = footprints.get(uid, ())
            if footprint != held.laid_out:
                self._take(uid, held, footprint, node.cards)
        promised = sorted(self.reserved.get(node.name, {}))
        for number, index in enumerate(promised):
            self.fleet.take(_promise(node.name, number), Task(0, 0, 1), Spot(node.name, (index,)))
        for number in range(len(promised), self._blocked.get(node.name, 0)):
            self.fleet.give_back(_promise(node.name, number))
        self._blocked[node.name] = len(promised)

    def _put_beside(self, uid: str, node: CardNode) -> bool:
        """Lay the only new one on a node out beside the others, where that is all there is to do; whether it was."""
        held = self._on_node[node.name][uid]
        asked = held.pod.asked
        if held.footprint is not None or asked.shares or self.reserved.get(node.name) or self._blocked.get(node.name):
            return False
        milli = self.fleet.milli_free[self.fleet.positions[node.name], : node.cards].tolist()
        free = [card for card, left in enumerate(milli) if left == WHOLE]
        if node.name in self._left or len(free) < asked.plugin:
            return False
        self._take(uid, held, tuple(Taken(card, WHOLE) for card in free[: asked.plugin]), node.cards)
        return True

    def _take(self, uid: str, held: _Held, footprint: Footprint, count: int) -> None:
        """Put a pod's footprint on a node of `count` cards into the fleet."""
        held.laid_out = footprint
        spots = [
            (Task(0, 0, 1, taken.milli, taken.memory), Spot(held.node, (taken.card,)))
            for taken in footprint
            if taken.card < count
        ]
        spots = spots or [(Task(0, 0, 0), Spot(held.node, ()))]
        task, spot = spots[0]
        spots[0] = (
            Task(held.pod.cpu_milli, held.pod.memory_mib, task.cards, task.card_milli, task.card_memory),
            spot,
        )
        for number, (task, spot) in enumerate(spots):
            self.fleet.take(f"{uid}/{number}", task, spot)
        self._give_back(uid, held, len(spots))

    def _laid_out(
        self, node: CardNode, but_for: str | None = None, exempt: Collection[int] = ()
    ) -> tuple[FreeOnNode, dict[str, Footprint]]:
        """Free capacity of a node, and the assumed cards of each pod: first those of pods whose cards are known."""
        count = node.cards
        free = FreeOnNode([WHOLE] * count, [node.card_memory] * count, node.card_memory)
        found: dict[str, Footprint] = {}
        unknown: list[_Held] = []
        for uid, held in self._on_node.get(node.name, {}).items():
            if uid == but_for or held.pod.asked.none:
                continue
            if held.footprint is None:
                unknown.append(held)
                continue
            found[uid] = held.footprint
            for taken in held.footprint:
                free.take(taken)
        reserved = self.reserved.get(node.name, {})
        for held in sorted(unknown, key=lambda holder: holder.pod.uid):
            own = self._exempt(held.pod, node.name)
            found[held.pod.uid] = lay_out(held.pod.asked, free, [card for card in reserved if card not in own], own)
        for index in reserved:
            if index not in exempt:
                free.take(Taken(index, WHOLE))
        return free, found

    def _hold(self, held: _Held) -> None:
        uid = held.pod.uid
        former = self._held.get(uid)
        if former is not None:
            if (former.pod, former.node, former.footprint) == (held.pod, held.node, held.footprint):
                former.bound = held.bound
                return
            held.keys = former.keys
            if former.node != held.node:
                self._take_off(uid, former)
                held.keys = 0
        self._held[uid] = held
        self._on_node.setdefault(held.node, {})[uid] = held
        self._unsettled.add(held.node)
        self._count(uid, held)

    def _take_off(self, uid: str, held: _Held) -> None:
        there = self._on_node[held.node]
        del there[uid]
        if not there:
            del self._on_node[held.node]
        self._give_back(uid, held, 0)
        self._unsettled.add(held.node)
        self._left.add(held.node)

    def _give_back(self, uid: str, held: _Held, keep: int) -> None:
        for number in range(keep, held.keys):
            self.fleet.give_back(f"{uid}/{number}")
        held.keys = keep

    def _count(self, uid: str, held: _Held) -> None:
        node = self.nodes.get(held.node)
        if node is not None or not self.usage.counts(uid):
            model = UNSEEN if node is None else node.model
            self.usage.use(uid, held.pod.namespace, model, held.pod.asked.milli)
            self.owners.use(held.pod.owned, model, held.pod.asked.milli)


def _promise(node: str, number: int) -> str:
    return f"promise/{node}/{number}"
