"""Marks where schedulers bind by themselves: cards are chosen when a pod is seen on its node, and written on it."""

import asyncio
from collections.abc import Callable

import structlog

from pod_scheduling.domain.extender.board import ExtenderBoard
from pod_scheduling.domain.extender.card_footprints import Placed
from pod_scheduling.domain.extender.card_marks import marks_of
from pod_scheduling.ports.card_cluster import CardCluster, CardPodSeen
from pod_scheduling.ports.pod_binding import PodChangedError, PodRef
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError

_AGAIN_S = 1.0

_log = structlog.get_logger(__name__)


class BoundPodMarker:
    """Writes once on each pod that it is given, one after another, while `may_write` says so."""

    def __init__(self, cluster: CardCluster, board: ExtenderBoard, clock: Clock, may_write: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._board = board
        self._clock = clock
        self._may_write = may_write
        self._to_mark: asyncio.Queue[CardPodSeen] = asyncio.Queue()
        self._queued: set[str] = set()
        self.marked = 0
        self.without_room = 0

    def put(self, seen: CardPodSeen) -> None:
        """Queue a pod that was seen on its node without marks."""
        if seen.pod.uid not in self._queued:
            self._queued.add(seen.pod.uid)
            self._to_mark.put_nowait(seen)
            if self._may_write():
                self._decide(seen)  # before anybody asks: who comes next is judged by it

    async def run(self) -> None:
        while True:
            seen = await self._to_mark.get()
            try:
                left = await self._try(seen) if self._may_write() else seen
            except BaseException:
                asyncio.get_running_loop().call_later(_AGAIN_S, self._to_mark.put_nowait, seen)
                raise
            if left is None:
                self._queued.discard(seen.pod.uid)
            else:  # meanwhile it is the others' turn
                asyncio.get_running_loop().call_later(_AGAIN_S if left is seen else 0, self._to_mark.put_nowait, left)

    async def _try(self, seen: CardPodSeen) -> CardPodSeen | None:
        """Return the mark left to write, if any: the pod itself, or a newer state of it."""
        if seen.node not in self._board.cards.nodes:
            return seen if self._is_there(seen) else None  # nodes and pods are told of apart
        try:
            await self._mark(seen)
        except PodChangedError:
            return await self._newer(seen)
        except ClusterUnavailableError as problem:
            _log.warning("a pod's cards could not be written; trying again", pod=seen.pod.name, why=str(problem))
            return seen
        return None

    async def _mark(self, seen: CardPodSeen) -> None:
        ref = _ref(seen)
        if seen.node is None or not self._is_there(seen):
            return  # it is gone
        placed = self._decide(seen)
        if placed is None:
            self.without_room += 1
            what = f"No GPU of {seen.node} has room for {ref}: it was bound beside gpu-admission, or two were at once."
            self._cluster.add_pod_event(ref, "NoCards", what)
            return
        await self._cluster.mark(ref, seen.version, marks_of(placed, seen.node, self._clock.now()))
        self.marked += 1

    def _decide(self, seen: CardPodSeen) -> Placed | None:
        """Choose a pod's cards on its node; None where there is no room."""
        if seen.node is None:
            return None
        placed = self._board.cards_of(seen.pod, seen.node)
        if placed is not None:
            self._board.cards.put_bound(seen.pod, seen.node, placed.footprint)
        return placed

    def _is_there(self, seen: CardPodSeen) -> bool:
        cards, uid = self._board.cards, seen.pod.uid
        return cards.is_bound(uid) and cards.node_of(uid) == seen.node

    async def _newer(self, seen: CardPodSeen) -> CardPodSeen | None:
        """Read the pod again; None where there is nothing to write any more."""
        try:
            found = await self._cluster.read_pod(_ref(seen))
        except ClusterUnavailableError:
            return seen
        return found if isinstance(found, CardPodSeen) and not found.marked else None


def _ref(seen: CardPodSeen) -> PodRef:
    return PodRef(seen.pod.namespace, seen.pod.name, seen.pod.uid)
