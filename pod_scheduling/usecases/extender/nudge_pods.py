"""Make schedulers look at waiting pods again: nothing tells them that a quota was raised, and by themselves they
come back to a pod that was refused after five minutes.

kube-scheduler tries a pod anew when the pod has changed: so an annotation is written on it, which means nothing else.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from math import inf

import structlog

from pod_scheduling.domain.extender.card_marks import ASKED_AGAIN
from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.card_cluster import CardCluster
from pod_scheduling.ports.pod_binding import PodChangedError, PodRef
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError

_PAUSE_S = 0.02
_LOOK_S = 1.0
_TRIES = 5
_LATE_S = 10.0
"""A pod that was refused under the old quota may be seen so long after the new one: they come by two watches."""

_log = structlog.get_logger(__name__)


class PodNudger:
    """Writes on one pod after another, those first that have waited longest, while `may_write` says so.

    `waiting` are the pods that were seen on no node, by uid, as they are now.
    """

    def __init__(
        self, cluster: CardCluster, clock: Clock, waiting: Mapping[str, CardPod], may_write: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._waiting = waiting
        self._may_write = may_write
        self._tries: dict[str, int] = {}
        self._late_until_s: dict[str, float] = {}
        self._some = asyncio.Event()
        self.nudged = 0
        self.given_up = 0

    def put(self, namespaces: Collection[str]) -> None:
        """Queue waiting pods of these namespaces, whose quotas were raised."""
        self._late_until_s |= dict.fromkeys(namespaces, self._now_s() + _LATE_S)
        for uid, pod in self._waiting.items():
            if pod.namespace in namespaces and not pod.asked.none:
                self._tries[uid] = 0
        if self._tries:
            self._some.set()

    def first_seen(self, pod: CardPod) -> None:
        """Queue a pod that is new: its scheduler may have asked about it under the old quota."""
        if not pod.asked.none and self._now_s() < self._late_until_s.get(pod.namespace, -inf):
            self._tries[pod.uid] = 0
            self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._tries = {uid: tries for uid, tries in self._tries.items() if uid in self._waiting}
            if self._tries and self._may_write():
                for uid in list(self._tries):
                    await self._nudge(uid)
                    await asyncio.sleep(_PAUSE_S)
            if self._tries:
                await asyncio.sleep(_LOOK_S)
            else:
                self._some.clear()

    async def _nudge(self, uid: str) -> None:
        pod = self._waiting.get(uid)
        if pod is None:
            self._tries.pop(uid, None)
            return
        ref = PodRef(pod.namespace, pod.name, uid)
        try:
            await self._cluster.mark(ref, None, {ASKED_AGAIN: self._clock.now().isoformat()})
        except PodChangedError:
            self._tries.pop(uid, None)  # gone, or another one by that name
        except ClusterUnavailableError as problem:
            self._failed(ref, str(problem))
        else:
            self._tries.pop(uid, None)
            self.nudged += 1

    def _failed(self, ref: PodRef, why: str) -> None:
        self._tries[ref.uid] += 1
        if self._tries[ref.uid] >= _TRIES:
            del self._tries[ref.uid]
            self.given_up += 1
            what = "its scheduler comes back to it by itself, which may take five minutes"
            _log.warning(
                "a waiting pod could not be nudged after its quota was raised", pod=str(ref), why=why, what=what
            )

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
