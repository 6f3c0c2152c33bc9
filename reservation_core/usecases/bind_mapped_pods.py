"""Binding pods with scheduling maps: decide on what is in memory, bind beside each other, say why somebody waits.

Whoever waits is looked at again when the node that it waits for, or what is on that node, has changed. What is being
bound counts as bound until the API server says otherwise: no decision is made on what is on its way.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

import structlog

from reservation_core.domain.map_placement import Bind, Board, MappedPod, Overlap, ReservedCards, Wait
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.map_cluster import (
    BindRefusedError,
    MapCluster,
    NodeGone,
    NodeSeen,
    PodBound,
    PodChangedError,
    PodGone,
    PodRef,
    PodWaiting,
    Sight,
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BindRules:
    """`parallel` calls are under way at once.

    Who could not be bound is tried again after `retry_s` seconds, then after twice as long, `longest_retry_s` at most.
    """

    overlap: Overlap = Overlap.DENY
    logical_label: str = "gpu-node-name"
    parallel: int = 16
    retry_s: float = 1.0
    longest_retry_s: float = 60.0


@dataclass(slots=True)
class _Waiting:
    pod: PodRef
    mapped: MappedPod
    told: str | None


@dataclass(slots=True)
class Counts:
    """What was done since the start."""

    bound: int = 0
    told: int = 0
    refused: int = 0


class MapScheduler:
    """Follows one cluster, and binds while `may_bind` says so (asked before every call)."""

    def __init__(self, cluster: MapCluster, rules: BindRules, may_bind: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._rules = rules
        self._may_bind = may_bind
        self._board = Board(rules.logical_label)
        self._waiting: dict[str, _Waiting] = {}
        self._for_node: dict[str, set[str]] = {}
        self._assumed: set[str] = set()
        self._failures: dict[str, int] = {}
        self._to_look_at: deque[str] = deque()
        self._queued: set[str] = set()
        self._work = asyncio.Event()
        self._listed = asyncio.Event()
        self.counts = Counts()

    @property
    def listed(self) -> bool:
        """Whether everything was seen once; nothing is decided before."""
        return self._listed.is_set()

    @property
    def waiting(self) -> int:
        """How many pods wait."""
        return len(self._waiting)

    async def run(self) -> None:
        """Follow and bind until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cluster.follow(self.see, self._listed.set), name="follow")
            group.create_task(self._decide(group), name="decide")

    def see(self, sight: Sight) -> None:
        """Take in what has changed."""
        match sight:
            case NodeSeen(node):
                before = self._board.names_of(node.name)
                self._board.put_node(node)
                self._wake(before | self._board.names_of(node.name))
            case NodeGone(name):
                words = self._board.names_of(name)
                self._board.drop_node(name)
                self._wake(words)
            case PodBound(pod, node, burden):
                self._leave(pod.uid)
                self._assumed.discard(pod.uid)
                if not self._board.has(pod.uid, node, burden):
                    self._release(pod.uid)
                    self._board.take(pod.uid, node, burden)
            case PodGone(uid):
                self._leave(uid)
                self._failures.pop(uid, None)
                self._assumed.discard(uid)
                self._release(uid)
            case PodWaiting():
                self._arrive(sight)
            case _:
                assert_never(sight)

    def reserve(self, reserved: ReservedCards) -> None:
        """Take in what our ledger has promised, by node and card; who waits there is looked at again."""
        before, self._board.reserved = self._board.reserved, reserved
        for node in {*before, *reserved}:
            if before.get(node) != reserved.get(node):
                self._wake(self._board.names_of(node))

    def look_again(self) -> None:
        """Look at everybody who waits: what was missed is made up."""
        for uid in self._waiting:
            self._queue(uid)

    def _arrive(self, sight: PodWaiting) -> None:
        uid = sight.pod.uid
        self._leave(uid)
        if sight.gated:
            self._release(uid)
            return
        self._waiting[uid] = _Waiting(sight.pod, sight.mapped, sight.told)
        if sight.mapped.entry is not None:
            self._for_node.setdefault(sight.mapped.entry.node, set()).add(uid)
        if uid not in self._assumed:  # else it may be an older state of a pod that is being bound
            self._release(uid)
            self._queue(uid)

    def _leave(self, uid: str) -> None:
        waiting = self._waiting.pop(uid, None)
        if waiting is not None and waiting.mapped.entry is not None:
            of_node = self._for_node[waiting.mapped.entry.node]
            of_node.discard(uid)
            if not of_node:
                del self._for_node[waiting.mapped.entry.node]

    def _release(self, uid: str) -> None:
        node = self._board.release(uid)
        if node is not None:
            self._wake(self._board.names_of(node))

    def _wake(self, words: Iterable[str]) -> None:
        for word in words:
            for uid in self._for_node.get(word, ()):
                self._queue(uid)

    def _queue(self, uid: str) -> None:
        if uid not in self._queued:
            self._queued.add(uid)
            self._to_look_at.append(uid)
            self._work.set()

    async def _decide(self, group: asyncio.TaskGroup) -> None:
        await self._listed.wait()
        turns = asyncio.Semaphore(self._rules.parallel)
        while True:
            await self._work.wait()
            while self._to_look_at:
                await turns.acquire()
                call = self._next()
                if call is None:
                    turns.release()
                else:
                    group.create_task(self._carried_out(call, turns))
            self._work.clear()

    async def _carried_out(self, call: Awaitable[None], turns: asyncio.Semaphore) -> None:
        try:
            await call
        finally:
            turns.release()

    def _next(self) -> Awaitable[None] | None:
        """Decide on one pod; what is to be done for it, if anything."""
        if not self._to_look_at:
            return None
        uid = self._to_look_at.popleft()
        self._queued.discard(uid)
        waiting = self._waiting.get(uid)
        if waiting is None or uid in self._assumed:
            return None
        if not self._may_bind():
            return None
        decision = self._board.place(waiting.mapped, self._rules.overlap)
        match decision:
            case Bind():
                self._assumed.add(uid)
                self._board.take(uid, decision.node, waiting.mapped.burden)
                return self._bind(waiting, decision)
            case Wait():
                message = f"{decision.obstacle}: {decision.message}"
                if message == waiting.told:
                    return None
                waiting.told = message
                return self._tell(waiting, decision)
            case _:
                assert_never(decision)

    async def _bind(self, waiting: _Waiting, decision: Bind) -> None:
        uid, pod = waiting.pod.uid, waiting.pod
        try:
            await self._cluster.bind(pod, decision.node)
        except (PodChangedError, BindRefusedError, ClusterUnavailableError) as problem:
            # A pod that has changed is seen to have soon, and is then none that waits; else it is tried again.
            self.counts.refused += 1
            _log.warning("a pod could not be bound; trying again", pod=str(pod), why=str(problem))
            self._failures[uid] = failures = self._failures.get(uid, 0) + 1
            pause_s = min(self._rules.longest_retry_s, self._rules.retry_s * 2 ** min(failures - 1, 16))
            asyncio.get_running_loop().call_later(pause_s, self._give_up, uid)
            return
        self._failures.pop(uid, None)
        self.counts.bound += 1
        _log.info("bound", pod=str(pod), node=decision.node)
        message = f"Successfully assigned {pod} to {decision.node}"
        self._cluster.tell_event(pod, "Scheduled", message, warning=False)
        if decision.warning is not None:
            self._cluster.tell_event(pod, "DeviceShared", decision.warning, warning=True)

    def _give_up(self, uid: str) -> None:
        """A pod that was not bound as far as is known: it waits again. Bound after all, it is seen to be."""
        if uid in self._assumed:
            self._assumed.discard(uid)
            self._release(uid)
            if uid in self._waiting:
                self._queue(uid)

    async def _tell(self, waiting: _Waiting, decision: Wait) -> None:
        self.counts.told += 1
        self._cluster.tell_event(waiting.pod, "FailedScheduling", decision.message, warning=True)
        try:
            await self._cluster.tell_waiting(waiting.pod, decision.obstacle, decision.message)
        except ClusterUnavailableError as problem:
            _log.warning("a pod could not be told why it waits", pod=str(waiting.pod), why=str(problem))
            waiting.told = None  # the next look tells again
