"""Nodes and pods as they really are, whom an extender sees late, and whose binds end in every way there is."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pod_scheduling.domain.extender.card_footprints import Footprint
from pod_scheduling.domain.extender.card_marks import ASKED_AGAIN, CARDS, read_footprint
from pod_scheduling.domain.extender.cards_in_use import CardNode, CardPod
from pod_scheduling.domain.extender.model_quotas import ModelQuotas
from pod_scheduling.ports.card_cluster import CardNodeSeen, CardPodSeen, CardSight, QuotasGone, QuotasSeen
from pod_scheduling.ports.pod_binding import BindRefusedError, NodeGone, PodChangedError, PodGone, PodRef
from reservation_core.ports.cluster import ClusterUnavailableError

LATEST_S = 4.0
"""How long after it was asked the server carries out a bind at the latest."""


@dataclass
class Pod:
    pod: CardPod
    node: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    nominated: str | None = None
    put_off: int | None = None

    @property
    def footprint(self) -> Footprint | None:
        return read_footprint(self.pod.asked, self.marks)


class Truth:
    """What the API server has, and every breach of what must never be."""

    def __init__(self, quotas: ModelQuotas, text: str | None) -> None:
        self.nodes: dict[str, CardNode] = {}
        self.models: dict[str, CardNode] = {}
        self.pods: dict[str, Pod] = {}
        self.quotas = quotas
        self.text = text
        self.watchers: list[View] = []
        self.breaches: list[str] = []
        self.binds = 0
        self.nudged: list[str] = []

    def put_node(self, node: CardNode) -> None:
        self.nodes[node.name] = self.models[node.name] = node
        self._tell(CardNodeSeen(node))

    def drop_node(self, name: str) -> None:
        del self.nodes[name]
        self._tell(NodeGone(name))

    def add_pod(self, pod: CardPod) -> None:
        self.pods[pod.uid] = Pod(pod)
        self.touch(pod.uid)

    def touch(self, uid: str) -> None:
        self.pods[uid].version += 1
        self._tell(sight(self.pods[uid]))

    def put_off(self, uid: str) -> None:
        """Its scheduler writes on it that it could not place it, and for another reason than before."""
        pod = self.pods[uid]
        pod.put_off = (pod.put_off or 0) + 1
        self.touch(uid)

    def drop_pod(self, uid: str) -> None:
        del self.pods[uid]
        self._tell(PodGone(uid))

    def bind(self, uid: str, node: str, marks: Mapping[str, str]) -> None:
        """Raises PodChangedError for one that is gone or on a node."""
        pod = self.pods.get(uid)
        if pod is None or pod.node is not None:
            raise PodChangedError(f"{uid} is not as it was")
        pod.node, pod.marks = node, dict(marks)
        self.binds += 1
        self._look_for_breaches(pod.pod.namespace, node)
        self.touch(uid)

    def mark(self, uid: str, version: str | None, marks: Mapping[str, str]) -> None:
        pod = self.pods.get(uid)
        if pod is None or version not in (None, str(pod.version)):
            raise PodChangedError(f"{uid} is not as it was")
        if ASKED_AGAIN in marks:
            self.nudged.append(uid)
            return
        if CARDS in pod.marks:
            self.breaches.append(f"{uid} was marked twice")
        pod.marks = dict(marks)
        self.touch(uid)

    def _look_for_breaches(self, namespace: str, node: str) -> None:
        self.breaches += [*quota_breaches(self, namespace), *card_breaches(self, node)]

    def _tell(self, seen: CardSight) -> None:
        for watcher in self.watchers:
            watcher.queue.put_nowait(seen)


def quota_breaches(truth: Truth, namespace: str) -> list[str]:
    """The oracle, from all bound pods: what a namespace uses against what it may use."""
    quota = truth.quotas.of(namespace)
    if quota is None:
        return []
    used: dict[str | None, int] = {}
    found = []
    for pod in truth.pods.values():
        if pod.pod.namespace == namespace and pod.node is not None and pod.pod.asked.milli:
            node = truth.models[pod.node]
            if quota.pools and node.pool not in quota.pools:
                found.append(f"{pod.pod.uid} of {namespace} is in the pool {node.pool}")
            word = quota.word_for(node.model.label, node.model.gpu_type)
            used[word] = used.get(word, 0) + pod.pod.asked.milli
    for word, milli in used.items():
        if quota.models is not None and (word is None or milli > quota.models[word]):
            found.append(f"{namespace} uses {milli} of {word}")
    return found


def card_breaches(truth: Truth, node: str) -> list[str]:
    """The oracle, card by card: who is on a node, and how much there is."""
    here, found, plugin = truth.models[node], [], 0
    milli: dict[int, int] = {}
    memory: dict[int, int] = {}
    for pod in truth.pods.values():
        if pod.node != node:
            continue
        plugin += pod.pod.asked.plugin
        footprint = pod.footprint
        if pod.pod.asked.shares and footprint is None:
            found.append(f"{pod.pod.uid} has no cards")
        for taken in footprint or ():
            milli[taken.card] = milli.get(taken.card, 0) + taken.milli
            memory[taken.card] = memory.get(taken.card, 0) + taken.memory
    if plugin > here.plugin_cards:
        found.append(f"{node} has {plugin} cards taken of {here.plugin_cards}")
    for card, amount in milli.items():
        if amount > 1000 or memory[card] > here.card_memory or card >= here.share_cards:
            found.append(f"card {card} of {node}: {amount}, memory {memory[card]}")
    return found


def sight(pod: Pod) -> CardPodSeen:
    marked = CARDS in pod.marks
    if pod.node is None:
        put_off = None if pod.nominated else pod.put_off
        return CardPodSeen(pod.pod, version=str(pod.version), nominated=pod.nominated, put_off=put_off)
    return CardPodSeen(pod.pod, pod.node, pod.footprint, marked, str(pod.version))


@dataclass
class View:
    """See pod_scheduling.ports.card_cluster.CardCluster: one extender's way to the truth. `lag_s`: how late it hears,
    at most."""

    truth: Truth
    chance: random.Random
    harm: float = 0.0
    lag_s: float = 0.1
    queue: asyncio.Queue[CardSight] = field(default_factory=asyncio.Queue)
    late: set[asyncio.Task[None]] = field(default_factory=set)
    told: list[str] = field(default_factory=list)
    bind_calls: int = 0
    listed_after_s: float = 0
    problem: str | None = None

    def __post_init__(self) -> None:
        self._anew = asyncio.Event()
        self._known: set[str] = set()
        self._known_nodes: set[str] = set()

    async def follow(self, handle: Callable[[CardSight], None], listed: Callable[[], None]) -> None:
        self.truth.watchers.append(self)
        while True:
            self._anew.clear()
            await asyncio.sleep(self.listed_after_s + self.chance.uniform(0, 0.5))
            self.queue = asyncio.Queue()
            self._list(handle)
            listed()
            while not self._anew.is_set():
                getting, asked = asyncio.ensure_future(self.queue.get()), asyncio.ensure_future(self._anew.wait())
                try:
                    await asyncio.wait((getting, asked), return_when=asyncio.FIRST_COMPLETED)
                    if getting.done():
                        pause = asyncio.ensure_future(asyncio.sleep(self.chance.uniform(0, self.lag_s)))
                        await asyncio.wait((asked, pause), return_when=asyncio.FIRST_COMPLETED)
                        pause.cancel()
                        if not self._anew.is_set():
                            self._handle(getting.result(), handle)
                            if self.chance.random() < 0.1:
                                self._handle(getting.result(), handle)
                finally:
                    getting.cancel()
                    asked.cancel()

    def _list(self, handle: Callable[[CardSight], None]) -> None:
        handle(QuotasGone() if self.truth.text is None else QuotasSeen("quotas", "gpu_quota", self.truth.text))
        for uid in sorted(self._known - set(self.truth.pods)):
            handle(PodGone(uid))
        for name in sorted(self._known_nodes - set(self.truth.nodes)):
            handle(NodeGone(name))
        for pod in list(self.truth.pods.values()):
            self._handle(sight(pod), handle)
        for node in self.truth.nodes.values():
            self._handle(CardNodeSeen(node), handle)

    def _handle(self, seen: CardSight, handle: Callable[[CardSight], None]) -> None:
        if isinstance(seen, CardPodSeen):
            self._known.add(seen.pod.uid)
        elif isinstance(seen, CardNodeSeen):
            self._known_nodes.add(seen.node.name)
        handle(seen)

    def read_anew(self) -> None:
        self._anew.set()

    def pod_of(self, thing: Mapping[str, Any]) -> CardPod:
        pod = thing["pod"]
        assert isinstance(pod, CardPod)
        return pod

    def asked_of(self, thing: Mapping[str, Any]) -> CardPodSeen:
        """A scheduler here sees every change at once."""
        pod = self.pod_of(thing)
        there = self.truth.pods.get(pod.uid)
        return CardPodSeen(pod) if there is None else replace(sight(there), pod=pod, node=None, footprint=None)

    async def bind(self, pod: PodRef, node: str, marks: Mapping[str, str]) -> None:
        self.bind_calls += 1
        if self.chance.random() >= self.harm:
            await asyncio.sleep(self.chance.uniform(0, 0.2))
            self._bound(pod, node, marks)
            return
        match self.chance.choice(["refused", "lost", "late", "never", "hangs"]):
            case "refused":
                raise BindRefusedError("not today")
            case "lost":
                self._bound(pod, node, marks)
            case "late":
                self._late(pod, node, marks)
            case "hangs":
                self._late(pod, node, marks)
                await asyncio.sleep(1000)
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        raise ClusterUnavailableError("no answer")

    def _bound(self, pod: PodRef, node: str, marks: Mapping[str, str]) -> None:
        there = self.truth.pods.get(pod.uid)
        if there is None or there.node != node:
            self.truth.bind(pod.uid, node, marks)

    def _late(self, pod: PodRef, node: str, marks: Mapping[str, str]) -> None:
        async def carried_out(after: float) -> None:
            await asyncio.sleep(after)
            try:
                self.truth.bind(pod.uid, node, marks)
            except PodChangedError:
                return

        task = asyncio.create_task(carried_out(self.chance.uniform(0, LATEST_S)))
        self.late.add(task)
        task.add_done_callback(self.late.discard)

    async def mark(self, pod: PodRef, version: str | None, marks: Mapping[str, str]) -> None:
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        if self.chance.random() < self.harm:
            raise ClusterUnavailableError("no answer")
        self.truth.mark(pod.uid, version, marks)

    async def read_pod(self, pod: PodRef) -> CardPodSeen | PodGone:
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        if self.chance.random() < self.harm:
            raise ClusterUnavailableError("no answer")
        found = self.truth.pods.get(pod.uid)
        return PodGone(pod.uid) if found is None else sight(found)

    def add_pod_event(self, pod: PodRef, reason: str, message: str) -> None:
        self.told.append(f"{pod} {reason} {message}")

    def add_quota_event(self, uid: str, reason: str, message: str, *, warning: bool) -> None:
        self.told.append(f"{uid} {reason} {message} {warning}")
