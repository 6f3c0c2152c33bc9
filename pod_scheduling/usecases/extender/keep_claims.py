"""Claims where only the filter is asked: a pod that passed it counts until it is known to be on no node."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from pod_scheduling.domain.extender.cards_in_use import CardPod, CardsInUse
from pod_scheduling.domain.extender.model_usage import Model
from pod_scheduling.ports.card_cluster import CardCluster, CardPodSeen
from pod_scheduling.ports.pod_binding import PodRef
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Passed:
    pod: CardPod
    asked: CardPodSeen | None
    binding_until_s: float


class ClaimKeeper:
    """Claims last for `lasts_s` seconds; for `binding_s` where it would be seen that a scheduler has given a pod up.

    A watch may be silent for longer without anybody knowing: so a pod is looked up before its claim is over, and
    one that is on a node goes on counting till the watch tells.
    """

    def __init__(self, cluster: CardCluster, cards: CardsInUse, lasts_s: float, binding_s: float) -> None:
        self._cluster = cluster
        self._cards = cards
        self._lasts_s = lasts_s
        self._binding_s = binding_s
        self._passed: dict[str, _Passed] = {}

    def claim(self, pod: CardPod, models: Collection[Model], asked: CardPodSeen | None = None) -> None:
        """Claim these models for a pod that passed the filter. `asked`: the pod then, where its scheduler asks once and
        then binds it, or says that it could not."""
        if models and not pod.asked.none:
            binding_s = self._binding_s if asked is not None else 0
            self._passed[pod.uid] = _Passed(pod, asked, self._now_s() + binding_s)
            self._claim(pod, models)

    def see(self, seen: CardPodSeen) -> None:
        """Take in a pod that is on no node."""
        passed = self._passed.get(seen.pod.uid)
        if passed is not None and passed.asked is not None and seen.was_put_off_since(passed.asked):
            self.put_off(seen.pod.uid)

    def put_off(self, uid: str) -> None:
        """Note that the scheduler does not bind the pod any more."""
        passed = self._passed.get(uid)
        if passed is not None:
            passed.binding_until_s = self._now_s()

    def drop(self, uid: str) -> None:
        """Drop a claim: the pod's node is known, or it has none."""
        self._passed.pop(uid, None)
        self._cards.drop_claim(uid)

    async def run(self) -> None:
        """End claims until cancelled."""
        while True:
            await asyncio.sleep(min(1.0, self._lasts_s / 4))
            self._passed = {uid: pod for uid, pod in self._passed.items() if self._cards.usage.has_claim(uid)}
            begun_s = self._now_s()
            for uid in self._cards.usage.claims_due(begun_s):
                if not await self._look_up(uid):
                    break
            else:
                self._cards.end_claims(begun_s)

    async def _look_up(self, uid: str) -> bool:
        """Look a pod up and prolong its claim if it is on a node; whether the API server answered."""
        passed = self._passed.get(uid)
        if passed is None:
            return True
        pod = passed.pod
        ref = PodRef(pod.namespace, pod.name, uid)
        try:
            found = await self._cluster.read_pod(ref)
        except ClusterUnavailableError as problem:
            _log.warning("whether a pod is bound is not known; it goes on counting", pod=str(ref), why=str(problem))
            self._claim(pod, self._cards.usage.claimed_by(uid))
            return False
        if isinstance(found, CardPodSeen) and (found.node is not None or passed.binding_until_s > self._now_s()):
            self._claim(pod, self._cards.usage.claimed_by(uid))
        return True

    def _claim(self, pod: CardPod, models: Collection[Model]) -> None:
        self._cards.claim(pod, models, self._now_s() + self._lasts_s)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
