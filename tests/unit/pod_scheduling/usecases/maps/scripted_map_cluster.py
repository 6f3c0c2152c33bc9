"""Nodes and pods as they really are, whom schedulers see late, and whose binds end in every way there is."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pod_scheduling.domain.maps.map_placement import Board, MapNode, MappedPod, Overlap, Wait
from pod_scheduling.ports.map_cluster import NodeSeen, PodBound, PodWaiting, Sight
from pod_scheduling.ports.pod_binding import BindRefusedError, NodeGone, PodChangedError, PodGone, PodRef
from reservation_core.ports.cluster import ClusterUnavailableError

LATEST_S = 4.0
"""How long after it was asked the server carries out a bind at the latest."""


@dataclass
class Pod:
    ref: PodRef
    mapped: MappedPod
    node: str | None = None
    gated: bool = False


class Truth:
    """What the API server has, and every breach of what must never be."""

    def __init__(self) -> None:
        self.nodes: dict[str, MapNode] = {}
        self.pods: dict[str, Pod] = {}
        self.watchers: list[View] = []
        self.breaches: list[str] = []
        self.binds = 0

    def put_node(self, node: MapNode) -> None:
        self.nodes[node.name] = node
        self._tell(NodeSeen(node))

    def drop_node(self, name: str) -> None:
        del self.nodes[name]
        self._tell(NodeGone(name))

    def add_pod(self, pod: Pod) -> None:
        self.pods[pod.ref.uid] = pod
        self._tell(sight(pod))

    def change_pod(self, uid: str) -> None:
        self._tell(sight(self.pods[uid]))

    def drop_pod(self, uid: str) -> None:
        del self.pods[uid]
        self._tell(PodGone(uid))

    def bind(self, uid: str, node: str) -> None:
        """Raises PodChangedError for one that is gone or elsewhere; bound there already, all is well."""
        pod = self.pods.get(uid)
        if pod is None or pod.node not in (None, node):
            raise PodChangedError(f"{uid} is not as it was")
        if pod.node == node:
            return
        self._look_for_breaches(pod, node)
        pod.node = node
        self.binds += 1
        self._tell(sight(pod))

    def board(self) -> Board:
        made = Board("gpu-node-name")
        for node in self.nodes.values():
            made.put_node(node)
        for pod in self.pods.values():
            if pod.node is not None:
                made.take(pod.ref.uid, pod.node, pod.mapped.burden)
        return made

    def left_waiting(self) -> list[str]:
        """Pods that wait and need not."""
        board = self.board()
        return [
            uid
            for uid, pod in self.pods.items()
            if pod.node is None and not pod.gated and not isinstance(board.place(pod.mapped, Overlap.DENY), Wait)
        ]

    def _look_for_breaches(self, pod: Pod, node: str) -> None:
        others = [listed_pod for listed_pod in self.pods.values() if listed_pod.node == node]
        mine = pod.mapped.burden.use
        for other in others:
            its = other.mapped.burden.use
            if mine and its and mine.group != its.group and set(mine.devices) & set(its.devices):
                self.breaches.append(f"{pod.ref} and {other.ref} share cards of {node}")
        used = sum(listed_pod.mapped.burden.requests["cpu"] for listed_pod in (*others, pod))
        if node in self.nodes and used > self.nodes[node].allocatable["cpu"]:
            self.breaches.append(f"{node} has more than it can take: {used}")
        if pod.gated:
            self.breaches.append(f"{pod.ref} has gates")

    def _tell(self, seen: Sight) -> None:
        for watcher in self.watchers:
            watcher.queue.put_nowait(seen)


def sight(pod: Pod) -> Sight:
    if pod.node is not None:
        return PodBound(pod.ref, pod.node, pod.mapped.burden)
    return PodWaiting(pod.ref, pod.mapped, gated=pod.gated)


@dataclass
class View:
    """See pod_scheduling.ports.map_cluster.MapCluster: one scheduler's way to the truth. `lag_s`: how late it hears, at
    most."""

    truth: Truth
    chance: random.Random
    leads: Callable[[], bool] = lambda: True
    harm: float = 0.0
    lag_s: float = 0.1
    queue: asyncio.Queue[Sight] = field(default_factory=asyncio.Queue)
    told: list[tuple[str, str]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    bind_calls: int = 0
    late: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._anew = asyncio.Event()
        self._known: set[str] = set()
        self._known_nodes: set[str] = set()

    async def follow(self, handle: Callable[[Sight], None], listed: Callable[[], None]) -> None:
        self.truth.watchers.append(self)
        while True:
            self._anew.clear()
            await asyncio.sleep(self.chance.uniform(0, 0.5))
            self.queue = asyncio.Queue()
            self._list(handle)
            listed()
            while not self._anew.is_set():
                getting, asked = asyncio.ensure_future(self.queue.get()), asyncio.ensure_future(self._anew.wait())
                try:
                    await asyncio.wait((getting, asked), return_when=asyncio.FIRST_COMPLETED)
                    if getting.done():
                        pause = asyncio.sleep(self.chance.uniform(0, self.lag_s))
                        await asyncio.wait((asked, asyncio.ensure_future(pause)), return_when=asyncio.FIRST_COMPLETED)
                        if not self._anew.is_set():
                            self._handle(getting.result(), handle)
                finally:
                    getting.cancel()
                    asked.cancel()

    def _list(self, handle: Callable[[Sight], None]) -> None:
        for uid in self._known - set(self.truth.pods):
            handle(PodGone(uid))
        for name in self._known_nodes - set(self.truth.nodes):
            handle(NodeGone(name))
        for pod in list(self.truth.pods.values()):
            self._handle(sight(pod), handle)
        for node in self.truth.nodes.values():
            self._handle(NodeSeen(node), handle)

    def _handle(self, seen: Sight, handle: Callable[[Sight], None]) -> None:
        match seen:
            case PodBound(pod) | PodWaiting(pod):
                self._known.add(pod.uid)
            case NodeSeen(node):
                self._known_nodes.add(node.name)
            case PodGone() | NodeGone():
                pass
        handle(seen)

    def read_anew(self) -> None:
        self._anew.set()

    async def bind(self, pod: PodRef, node: str, marks: Mapping[str, str] = {}) -> None:
        assert not marks
        self.bind_calls += 1
        if not self.leads():
            self.truth.breaches.append(f"a bind of {pod} by one who does not lead")
        if self.chance.random() >= self.harm:
            await asyncio.sleep(self.chance.uniform(0, 0.2))
            self.truth.bind(pod.uid, node)
            return
        match self.chance.choice(["refused", "lost", "late", "never", "hangs"]):
            case "refused":
                raise BindRefusedError("not today")
            case "lost":
                self.truth.bind(pod.uid, node)
            case "late":
                self._late(pod, node)
            case "hangs":
                self._late(pod, node)
                await asyncio.sleep(1000)
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        raise ClusterUnavailableError("no answer")

    def _late(self, pod: PodRef, node: str) -> None:
        async def carried_out(after: float) -> None:
            await asyncio.sleep(after)
            try:
                self.truth.bind(pod.uid, node)
            except PodChangedError:
                return

        task = asyncio.create_task(carried_out(self.chance.uniform(0, LATEST_S)))
        self.late.add(task)
        task.add_done_callback(self.late.discard)

    async def node_of(self, pod: PodRef) -> str | None:
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        if self.chance.random() < self.harm:
            raise ClusterUnavailableError("no answer")
        found = self.truth.pods.get(pod.uid)
        return None if found is None else found.node

    async def report_waiting(self, pod: PodRef, reason: str, message: str) -> None:
        if not self.leads():
            self.truth.breaches.append(f"{pod} was told by one who does not lead")
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        if self.chance.random() < self.harm:
            raise ClusterUnavailableError("no answer")
        self.told.append((pod.uid, f"{reason}: {message}"))

    def add_event(self, pod: PodRef, reason: str, message: str, *, warning: bool) -> None:
        del message, warning
        self.events.append((pod.uid, reason))
