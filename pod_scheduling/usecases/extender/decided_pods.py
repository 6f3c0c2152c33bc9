"""Decisions of the extender that count before their pods are seen on their nodes; see usecases.assumed_pods."""

import asyncio
from dataclasses import dataclass
from math import inf

from pod_scheduling.domain.extender.card_footprints import Footprint
from pod_scheduling.domain.extender.cards_in_use import CardsInUse
from pod_scheduling.ports.card_cluster import CardCluster, CardPodSeen
from pod_scheduling.ports.pod_binding import BindRefusedError, PodGone, PodRef
from pod_scheduling.usecases.assumed_pods import AssumedPod, AssumedPods
from pod_scheduling.usecases.extender.rules import ExtendRules


@dataclass(slots=True)
class Decision(AssumedPod):
    """`chosen`: by the question which nodes would do; no bind has been asked of us. `asked` is the pod as it was then.

    Till `binding_until_s` its scheduler may be about to bind it.
    """

    asked: CardPodSeen | None = None

    @property
    def chosen(self) -> bool:
        return self.asked is not None


class DecidedPods(AssumedPods[Decision]):
    """All decisions that count now, by the pod's uid."""

    def __init__(self, cluster: CardCluster, cards: CardsInUse, rules: ExtendRules) -> None:
        super().__init__(
            cluster, rules.unclear_s, rules.assumed_s, free_gpus=lambda decision: cards.drop_assumed(decision.pod.uid)
        )
        self._cluster = cluster
        self._cards = cards
        self._rules = rules

    def bind_of(self, uid: str) -> Decision | None:
        """The decision that a bind was begun with."""
        found = self._by_uid.get(uid)
        return None if found is None or found.chosen else found

    def choose(self, asked: CardPodSeen, node: str, footprint: Footprint | None = None) -> None:
        """A scheduler that binds by itself is told this node alone: the pod counts there from now on, on those cards.

        Asked about once more it may be given another, unless we bind it.
        """
        pod = asked.pod
        former = self._by_uid.get(pod.uid)
        if (former is None or former.chosen) and not self._cards.is_bound(pod.uid):
            ref = PodRef(pod.namespace, pod.name, pod.uid)
            begun_s = self._now_s()
            made = Decision(ref, node, begun_s, binding_until_s=begun_s + self._rules.binding_s, asked=asked)
            if former is not None:
                self.put_off(pod.uid)
                made.unclear_until_s = former.unclear_until_s  # till then a bind by the former one may still come
            self._by_uid[pod.uid] = made
            self._cards.assume(pod, node, footprint)

    def take_back(self, uid: str) -> None:
        """Drop a choice that the scheduler took back before it bound the pod."""
        decision = self._by_uid.get(uid)
        if decision is not None and decision.chosen:
            if decision.unclear_until_s == -inf:
                self._give_up(decision)
            else:  # it may have been bound by an earlier one: it is looked up once that is over
                decision.binding_until_s = decision.again_s = decision.since_s = -inf

    def see(self, seen: CardPodSeen) -> None:
        """Take in a pod that is on no node."""
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
            elif not await self._find_out(former):
                break
        if self._by_uid.get(ref.uid) is former:
            raise BindRefusedError(f"Whether {ref} is bound to {former.node} is not known yet; ask again.")

    async def _node_of(self, assumed: Decision) -> str | None:
        found = await self._cluster.read_pod(assumed.pod)
        if isinstance(found, PodGone):
            assumed.binding_until_s = -inf  # nobody binds what is gone
            return None
        return found.node
