"""The extender's decisions: which nodes fit a pod, how good each is, and which cards the pod gets.

Readiness, taints, processor time and memory are kube-scheduler's to judge; here they only help to choose among nodes.
Nothing here waits, and nothing changes but by what is seen and decided.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from pod_scheduling.domain.extender.asked_positions import UNKNOWN, AskedNodes
from pod_scheduling.domain.extender.card_footprints import FreeOnNode, Placed, place_beside_plugin
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod, CardsInUse, LeftOnNode
from pod_scheduling.domain.extender.model_usage import Model
from pod_scheduling.domain.extender.owner_quotas import OwnedPod
from pod_scheduling.domain.extender.refusal_reasons import (
    UNKNOWN_NODE,
    is_simple,
    lacking,
    may_be_taken,
    never_fits,
    share_of,
)
from pod_scheduling.domain.extender.share_claims import ShareClaims, fit_in_any_order
from pod_scheduling.domain.placement.fleet import Positions
from pod_scheduling.domain.placement.ranking import Ranking
from pod_scheduling.domain.placement.tasks import WHOLE, Task

BEST = 10
"""The score of the best node; the worst has 0."""

_Asked = tuple[Positions, Positions, NDArray[np.bool_]]
"""Of each node that was asked about: its position, the number of its kind, and whether it would do."""


_Denials = tuple[list[str], NDArray[np.bool_]]
"""By the number of a kind: why a pod may not go to nodes of it, empty where it may; and whether that is so."""


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """Nodes that fit, in the order of the question, and why others do not. Evictions help `failed` alone."""

    fitting: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod does not go to that node; the text says why, and what to do."""

    reason: str


class ExtenderBoard:
    """`by_policy`: the policy chooses the card of a share, too, and not gpu-manager's order."""

    def __init__(self, cards: CardsInUse, ranking: Ranking, *, by_policy: bool = False) -> None:
        self.cards = cards
        self.ranking = ranking
        self._by_policy = by_policy
        self._asked = AskedNodes(cards.fleet)

    def filter(self, pod: CardPod, nodes: Sequence[str]) -> FilterVerdict:
        """Which nodes fit a pod now."""
        asked = pod.asked
        if asked.none:
            return FilterVerdict(tuple(nodes), {}, {})
        if asked.refused is not None:
            return FilterVerdict((), {}, dict.fromkeys(nodes, asked.refused))
        if not self.cards.nodes:
            return FilterVerdict((), dict.fromkeys(nodes, UNKNOWN_NODE), {})
        self.cards.settle()
        at = self._asked.at(nodes)
        kinds = self.cards.kind_at[at]
        denials = self._denials(pod, kinds[at != UNKNOWN])
        fits = self._has_room(pod, at) & ~denials[1][kinds]
        if fits.all():
            return FilterVerdict(tuple(nodes), {}, {})
        return self._explained(pod, nodes, (at, kinds, fits), denials)

    def beside_claims(self, pod: CardPod, found: FilterVerdict, claims: ShareClaims) -> FilterVerdict:
        """The verdict if all pods with a claim on a node come there."""
        if not pod.asked.shares:
            return found
        others = {name: claims.others(name, pod.uid) for name in found.fitting}
        taken = {name for name, pods in others.items() if pods and not self._has_room_beside(pod, name, pods)}
        if not taken:
            return found
        failed = {name: may_be_taken(len(others[name])) for name in found.fitting if name in taken}
        fitting = tuple(name for name in found.fitting if name not in taken)
        return FilterVerdict(fitting, {**found.failed, **failed}, found.unresolvable)

    def choose(self, pod: CardPod, nodes: Sequence[str]) -> FilterVerdict:
        """The best of the nodes that fit a pod now, all for a pod without cards; why, where none fits.

        The first of equals. Cards that only this pod may have, of its booking, are tried last.
        """
        asked = pod.asked
        if asked.none:
            return self.filter(pod, nodes)
        if asked.refused is None and self.cards.nodes:
            self.cards.settle()
            at = self._asked.at(nodes)
            kinds = self.cards.kind_at[at]
            fits = self._has_room(pod, at) & ~self._denials(pod, kinds[at != UNKNOWN])[1][kinds]
            able = np.flatnonzero(fits)
            if len(able):
                values = self.ranking.scores(self.cards.fleet, _whole_task(pod), at[able])
                return FilterVerdict((nodes[int(able[values.argmax()])],), {}, {})
        found = self.filter(pod, nodes)
        return FilterVerdict(found.fitting[:1], found.failed, found.unresolvable)

    def scores(self, pod: CardPod, nodes: Sequence[str]) -> list[int]:
        """How good each node is, 0 to 10; 0 for nodes that do not fit, and all 0 for a pod without cards."""
        if pod.asked.none or pod.asked.refused is not None:
            return [0] * len(nodes)
        self.cards.settle()
        task = _whole_task(pod)
        asked = self._asked.at(nodes)
        able = self._has_cards(task, asked)
        at = asked[able]
        scores = np.zeros(len(nodes), np.intp)
        if len(at):
            values = self.ranking.scores(self.cards.fleet, task, at)
            best, worst = float(values.max()), float(values.min())
            # Below the best nobody has its score, however near they are: schedulers add scores of their own.
            spread = (best - worst) or 1.0
            scores[able] = np.where(values == best, BEST, np.floor((values - worst) / spread * (BEST - 1)))
        found: list[int] = scores.tolist()
        return found

    def decide(self, pod: CardPod, node_name: str) -> Placed | Refused:
        """Choose the cards for a pod that its scheduler has given to a node; nothing is taken yet.

        A pod that counts already, here or elsewhere, does not stand in its own way.
        """
        node = self.cards.nodes.get(node_name)
        if pod.asked.none:
            return Placed((), ())
        if pod.asked.refused is not None:
            return Refused(pod.asked.refused)
        if node is None:
            return Refused(UNKNOWN_NODE)
        self.cards.settle()
        denial = self._denial(pod, pod.owned, node)
        if denial is not None:
            return Refused(denial)
        placed = self._room(pod, node)
        return Refused(self._lacking(pod, node)) if placed is None else placed

    def cards_of(self, pod: CardPod, node_name: str) -> Placed | None:
        """The cards for a pod that was bound beside us; None where there is no room."""
        node = self.cards.nodes.get(node_name)
        if node is None:
            return None
        self.cards.settle()
        return self._room(pod, node)

    def learn(self, pod: CardPod) -> None:
        """Let the policy count a new pod."""
        if pod.asked.refused is None:
            self.ranking.learn(_whole_task(pod))

    def models_of(self, nodes: Collection[str]) -> set[Model]:
        """The models of these nodes: by their kinds, of which there are few."""
        at = self._asked.at(list(nodes))
        kinds = np.bincount(self.cards.kind_at[at[at != UNKNOWN]])
        return {self.cards.kinds[kind].model for kind in np.flatnonzero(kinds).tolist()}

    def _denial(self, pod: CardPod, owned: OwnedPod, node: CardNode) -> str | None:
        """Why a pod may not go to nodes of this kind, however much is free there."""
        denial = self.cards.usage.denial(pod.uid, pod.namespace, pod.asked.milli, node.model, node.pool)
        denial = denial or self.cards.owners.denial(owned, pod.asked.milli, node.model)
        return denial or never_fits(pod.asked, node)

    def _denials(self, pod: CardPod, kinds: Positions) -> _Denials:
        """The denials of nodes of these kinds."""
        denials = [""] * len(self.cards.kinds)
        denied = np.zeros(len(denials), bool)
        owned = pod.owned
        for kind in (0,) if len(denials) == 1 else np.flatnonzero(np.bincount(kinds)).tolist():
            denials[kind] = self._denial(pod, owned, self.cards.kinds[kind]) or ""
            denied[kind] = bool(denials[kind])
        return denials, denied

    def _explained(self, pod: CardPod, nodes: Sequence[str], asked: _Asked, denials: _Denials) -> FilterVerdict:
        """The verdict where not all fit; nodes of which more may be free to this pod are looked at once more."""
        at, kinds, fits = asked
        why, denied = denials
        never = np.flatnonzero((at != UNKNOWN) & denied[kinds])
        unresolvable = {
            nodes[number]: why[kind] for number, kind in zip(never.tolist(), kinds[never].tolist(), strict=True)
        }
        full = np.flatnonzero((at != UNKNOWN) & ~denied[kinds] & ~fits)
        lefts = [*self.cards.left_at(at[full], share_of(pod.asked))]
        reasons = {left: lacking(pod.asked, LeftOnNode(*left), 0) for left in {*lefts}}
        failed = {nodes[number]: reasons[left] for number, left in zip(full.tolist(), lefts, strict=True)}
        for name in failed.keys() & {*self.cards.reserved, self.cards.node_of(pod.uid)}:
            if self._room(pod, self.cards.nodes[name]) is None:
                failed[name] = self._lacking(pod, self.cards.nodes[name])
            else:
                del failed[name]
                fits[nodes.index(name)] = True
        failed |= {nodes[number]: UNKNOWN_NODE for number in np.flatnonzero(at == UNKNOWN).tolist()}
        return FilterVerdict(tuple(compress(nodes, fits.tolist())), failed, unresolvable)

    def _has_cards(self, task: Task, at: Positions) -> NDArray[np.bool_]:
        """Which of the nodes at these positions have room now for a task."""
        fleet, known = self.cards.fleet, at != UNKNOWN
        if known.all():
            return fleet.has_cards(task, at)
        able = np.zeros(len(at), bool)
        able[known] = fleet.has_cards(task, at[known])
        return able

    def _has_room(self, pod: CardPod, at: Positions) -> NDArray[np.bool_]:
        """Which of the nodes at these positions have room now for all parts of a pod."""
        able = self._has_cards(_whole_task(pod), at)
        if is_simple(pod.asked):
            return able
        known: dict[tuple[tuple[int, ...], ...], bool] = {}
        for number in np.flatnonzero(able).tolist():
            free = self.cards.free_for(pod, self.cards.nodes[self.cards.fleet.name_at(int(at[number]))])
            alike = (tuple(free.milli), tuple(free.memory))
            if alike not in known:
                known[alike] = place_beside_plugin(pod.asked, free) is not None
            able[number] = known[alike]
        return able

    def _has_room_beside(self, pod: CardPod, name: str, others: Sequence[CardPod]) -> bool:
        free = self.cards.free_for(pod, self.cards.nodes[name])
        return fit_in_any_order([pod.asked, *(other.asked for other in others)], free)

    def _room(self, pod: CardPod, node: CardNode) -> Placed | None:
        """The cards that the pod would get on a node; of a device plugin's none are named."""
        free = self.cards.free_for(pod, node)
        return place_beside_plugin(pod.asked, free, self._chosen(pod, node, free))

    def _chosen(self, pod: CardPod, node: CardNode, free: FreeOnNode) -> tuple[int, ...] | None:
        """The policy's choice of cards, where it is asked for one and knows what is free."""
        part = pod.asked.parts[0] if len(pod.asked.parts) == 1 else None
        if part is None or (part.milli < WHOLE and not self._by_policy):
            return None
        chosen = self.ranking.cards(self.cards.fleet, _whole_task(pod), node.name)
        if chosen is None or any(card >= len(free.milli) or free.milli[card] < part.milli for card in chosen):
            return None
        return chosen

    def _lacking(self, pod: CardPod, node: CardNode) -> str:
        free, share = self.cards.free_for(pod, node), share_of(pod.asked)
        roomy = max(
            (memory for memory, milli in zip(free.memory, free.milli, strict=True) if milli >= share), default=0
        )
        left = LeftOnNode(len(free.whole()), max(free.milli, default=0), roomy)
        return lacking(pod.asked, left, len(self.cards.reserved.get(node.name, ())))


def _whole_task(pod: CardPod) -> Task:
    """The pod as one task: of several parts the largest."""
    asked = pod.asked
    if asked.plugin:
        return Task(pod.cpu_milli, pod.memory_mib, asked.plugin)
    parts = [*asked.parts, *(earlier_part.part for earlier_part in asked.earlier)]
    part = max(parts, key=lambda part: (part.cards * part.milli, part.memory))
    return Task(pod.cpu_milli, pod.memory_mib, part.cards, part.milli, part.memory)
