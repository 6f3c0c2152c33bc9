"""Decisions that count before their pods are seen on their nodes, and finding out what became of those pods.

A decision ends when its pod is seen bound or gone, or when its bind is known not to have been. Silence says nothing: a
bind without an answer may still be carried out for some seconds.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import structlog

from pod_scheduling.domain.extender.card_footprints import Footprint
from pod_scheduling.domain.extender.cards_in_use import CardsInUse
from pod_scheduling.ports.card_cluster import CardCluster, CardPodSeen
from pod_scheduling.ports.extender import BindRefusedError
from pod_scheduling.ports.map_cluster import PodRef
from pod_scheduling.usecases.extender.rules import ExtenderCounts, ExtendRules
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Decision:
    """A pod's node, and what is to be written on the pod. `chosen`: by the question which nodes would do; no bind has
    been asked of us.

    `asked` is the pod as it was then, and till `binding_until_s` its scheduler may be about to bind it, as far as
    anybody can see. It is looked up all the same, not before `again_s`.
    """

    pod: PodRef
    node: str
    marks: Mapping[str, str]
    since_s: float
    asked: CardPodSeen | None = None
    binding_until_s: float = -inf
    again_s: float = -inf
    calls: int = 0
    answered: bool = True
    unclear_until_s: float = -inf

    @property
    def chosen(self) -> bool:
        return self.asked is not None


class DecidedPods:
    """All decisions that count now, by the pod's uid."""

    def __init__(self, cluster: CardCluster, cards: CardsInUse, rules: ExtendRules, counts: ExtenderCounts) -> None:
        self._cluster = cluster
        self._cards = cards
        self._rules = rules
        self._counts = counts
        self._by_uid: dict[str, Decision] = {}
        self._unclear_until_s = -inf

    def __len__(self) -> int:
        return len(self._by_uid)

    @property
    def settled(self) -> bool:
        """Whether no bind that was asked for can still be carried out."""
        return self._now_s() >= self._unclear_until_s and not any(each.calls for each in self._by_uid.values())

    def bind_of(self, uid: str) -> Decision | None:
        """What a bind was begun with."""
        found = self._by_uid.get(uid)
        return None if found is None or found.chosen else found

    def put(self, decision: Decision) -> None:
        """A decision counts from now on. The cards are told by who decided."""
        self._by_uid[decision.pod.uid] = decision

    def choose(self, asked: CardPodSeen, node: str, footprint: Footprint | None = None) -> None:
        """A scheduler that binds by itself is told this node alone: the pod counts there from now on, on those cards.

        Asked about once more it may be given another, unless we bind it.
        """
        pod = asked.pod
        former = self._by_uid.get(pod.uid)
        if (former is None or former.chosen) and not self._cards.is_bound(pod.uid):
            ref = PodRef(pod.namespace, pod.name, pod.uid)
            begun_s = self._now_s()
            made = Decision(ref, node, {}, begun_s, asked, begun_s + self._rules.binding_s)
            if former is not None:
                self.put_off(pod.uid)
                made.unclear_until_s = former.unclear_until_s  # till then a bind by the former one may still come
            self._by_uid[pod.uid] = made
            self._cards.assume(pod, node, footprint)

    def take_back(self, uid: str) -> None:
        """The pod's scheduler has taken its choice back before it asked anybody to bind the pod by it."""
        decision = self._by_uid.get(uid)
        if decision is not None and decision.chosen:
            if decision.unclear_until_s == -inf:
                self._give_up(decision)
            else:  # it may have been bound by an earlier one: it is looked up once that is over
                decision.binding_until_s = decision.again_s = decision.since_s = -inf

    def see(self, seen: CardPodSeen) -> None:
        """A pod that is on no node, as it is now."""
        decision = self._by_uid.get(seen.pod.uid)
        if decision is not None and decision.asked is not None and seen.was_put_off_since(decision.asked):
            self.put_off(seen.pod.uid)

    def put_off(self, uid: str) -> None:
        """The pod's scheduler has written that it could not place it, or has asked again and found no node.

        A bind that it asked for may still be carried out: so the decision goes on counting for a while.
        """
        decision = self._by_uid.get(uid)
        if decision is not None and decision.binding_until_s > self._now_s():
            decision.binding_until_s = decision.again_s = -inf
            decision.unclear_until_s = self._now_s() + self._rules.unclear_s

    def forget(self, uid: str) -> None:
        """The pod was seen on a node, or is gone."""
        self._by_uid.pop(uid, None)

    def refused(self, decision: Decision) -> None:
        """The API server did not carry out a bind. Was it asked only once, nothing counts any more."""
        if decision.calls == 1 and decision.unclear_until_s <= self._now_s():
            self._give_up(decision)

    def unanswered(self, decision: Decision) -> None:
        """It is not known whether a bind was carried out, or will be."""
        decision.answered = False
        decision.unclear_until_s = self._unclear_until_s = self._now_s() + self._rules.unclear_s

    async def wait_known_where(self, ref: PodRef, node: str) -> None:
        """Wait while a pod may come to be on another node. Raises BindRefusedError when that stays unknown."""
        former = self.bind_of(ref.uid)
        if former is None or former.node == node:
            return
        give_up_s = self._now_s() + self._rules.bind_s + self._rules.unclear_s
        while self._by_uid.get(ref.uid) is former and self._now_s() < give_up_s:
            wait_s = former.unclear_until_s - self._now_s()
            if former.calls or wait_s > 0:
                await asyncio.sleep(max(0.05, min(wait_s, 0.5)))
            elif not await self._found_out(former):
                break
        if self._by_uid.get(ref.uid) is former:
            raise BindRefusedError(f"Whether {ref} is bound to {former.node} is not known yet; ask again.")

    async def run(self) -> None:
        """Find out about pods of which nothing was seen, until cancelled."""
        while True:
            await asyncio.sleep(min(1.0, self._rules.assumed_s / 4))
            for decision in list(self._by_uid.values()):
                over_s = decision.since_s + self._rules.assumed_s * decision.answered
                due_s = max(decision.unclear_until_s, decision.again_s, over_s)
                if not decision.calls and due_s <= self._now_s():
                    await self._found_out(decision)

    async def _found_out(self, decision: Decision) -> bool:
        """Look a pod up whose bind is over one way or another; whether that could be done."""
        ref = decision.pod
        try:
            found = await self._cluster.look_at(ref)
        except ClusterUnavailableError as problem:
            _log.warning("whether a pod is bound is not known; asking again", pod=str(ref), why=str(problem))
            return False
        if self._by_uid.get(ref.uid) is not decision or decision.calls:
            return True
        now_s = self._now_s()
        if isinstance(found, CardPodSeen) and found.node is not None:
            decision.since_s, decision.answered = now_s, True  # the watch will tell; until then it counts
            return True
        if isinstance(found, CardPodSeen) and decision.binding_until_s > now_s:
            decision.again_s = min(now_s + self._rules.assumed_s, decision.binding_until_s)
            return True
        if not decision.chosen:
            self._counts.given_up += 1
            _log.warning("a pod was not bound as decided; its cards are free again", pod=str(ref), node=decision.node)
        self._give_up(decision)
        return True

    def _give_up(self, decision: Decision) -> None:
        """A decision that counts no more."""
        uid = decision.pod.uid
        if self._by_uid.get(uid) is decision:
            del self._by_uid[uid]
            self._cards.drop_assumed(uid)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
