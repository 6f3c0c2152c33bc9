"""Bind pods with scheduling maps: decide in memory, bind in parallel, say why a pod waits.

A waiting pod is looked at again when the node that it waits for, or what is on that node, has changed. A pod being
bound counts as bound until the API server says otherwise: no decision is made on what is on its way. A new lease holder
reads everything anew first: pods that the holder before bound last may not have been seen here yet.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import assert_never

import structlog

from pod_scheduling.domain.maps.map_placement import Bind, Board, MappedPod, Overlap, ReservedCards, Wait
from pod_scheduling.ports.keeping import Keep, not_kept
from pod_scheduling.ports.map_cluster import MapCluster, NodeSeen, PodBound, PodWaiting, Sight
from pod_scheduling.ports.pod_binding import BindRefusedError, NamespaceSeen, NodeGone, PodChangedError, PodGone, PodRef
from pod_scheduling.usecases.assumed_pods import AssumedPod, AssumedPods, BindCounts, BindUnansweredError
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BindRules:
    """`parallel` calls are under way at once.

    A failed bind is tried again after `retry_s` seconds, then after twice as long, `longest_retry_s` at most.
    A bind that was not answered may still be carried out for `unclear_s` seconds: so long its cards stay taken. A pod
    that was bound and is not seen to be for `assumed_s` is looked up. A pod that waits for the same with other figures
    is told so after `retell_s` seconds; `tellers` tell at once.
    """

    overlap: Overlap = Overlap.DENY
    logical_label: str = "gpu-node-name"
    parallel: int = 16
    retry_s: float = 1.0
    longest_retry_s: float = 60.0
    unclear_s: float = 5.0
    assumed_s: float = 30.0
    retell_s: float = 30.0
    tellers: int = 8


_AT_A_TIME = 50
"""Decisions between two chances for others in this process: the lease has to be renewed whoever waits."""


@dataclass(slots=True)
class _Waiting:
    pod: PodRef
    mapped: MappedPod
    told: str | None
    told_at: float


class MapScheduler:
    """Follows one cluster, and binds while it leads.

    `leads_for_s` says for how many seconds it surely will from now on, 0 or less: it does not. It is asked before every
    call, and no call goes on for longer.
    """

    def __init__(self, cluster: MapCluster, rules: BindRules, leads_for_s: Callable[[], float]) -> None:
        self._cluster = cluster
        self._rules = rules
        self._leads_for_s = leads_for_s
        self._board = Board(rules.logical_label)
        self._waiting: dict[str, _Waiting] = {}
        self._for_node: dict[str, set[str]] = {}
        self._assumed = AssumedPods[AssumedPod](cluster, rules.unclear_s, rules.assumed_s, self._requeue)
        self._failures: dict[str, int] = {}
        self._to_look_at: deque[str] = deque()
        self._queued: set[str] = set()
        self._work = asyncio.Event()
        self._listed = asyncio.Event()
        self._fresh = True
        self._ending = False
        self._turns = asyncio.Semaphore(rules.parallel)
        self._to_tell: dict[str, Wait] = {}
        self._untold = asyncio.Event()
        self.told = 0

    @property
    def listed(self) -> bool:
        """Whether everything was seen once; nothing is decided before."""
        return self._listed.is_set()

    @property
    def counts(self) -> BindCounts:
        return self._assumed.counts

    @property
    def waiting(self) -> int:
        """The number of waiting pods."""
        return len(self._waiting)

    async def run(self, keep: Keep = not_kept) -> None:
        """Follow and bind until cancelled; `keep` begins each of its parts again that fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(keep("follow", self._follow), name="follow")
            group.create_task(keep("assumed_pods", self._assumed.run), name="assumed pods")
            group.create_task(keep("decide", lambda: self._decide(group)), name="decide")
            for _ in range(self._rules.tellers):
                group.create_task(keep("tell", self._report_waiting_pods), name="tell")

    async def _follow(self) -> None:
        try:
            await self._cluster.follow(self.see, self._all_seen)
        except Exception:
            self._fresh = False  # what is in memory is not all that there is: nothing is decided on it
            raise

    def lead(self) -> None:
        """Begin to lead. Nothing is decided before everything was read anew."""
        self._fresh = False
        self._cluster.read_anew()

    async def settle(self) -> None:
        """Begin no more binds, and wait for those under way while it surely leads."""
        self._ending = True
        for _ in range(self._rules.parallel):
            await self._turns.acquire()

    @property
    def settled(self) -> bool:
        """Whether nothing that was asked for can still be carried out, once it was waited for."""
        return self._ending and self._assumed.settled

    def see(self, sight: Sight) -> None:
        """Take in a change of the cluster."""
        match sight:
            case NamespaceSeen(name, enforced):
                if self._board.enforce(name, enforced=enforced):
                    self.requeue_all()
            case NodeSeen(node):
                if self._board.knows(node):
                    return  # as most of what is told of nodes: that they live
                before = self._board.names_of(node.name)
                self._board.put_node(node)
                self._wake(before | self._board.names_of(node.name))
            case NodeGone(name):
                words = self._board.names_of(name)
                self._board.drop_node(name)
                self._wake(words)
            case PodBound(pod, node, burden):
                self._leave(pod.uid)
                self._failures.pop(pod.uid, None)
                self._assumed.forget(pod.uid)
                if not self._board.has(pod.uid, node, burden):
                    self._release(pod.uid)
                    self._board.take(pod.uid, node, burden)
            case PodGone(uid):
                self._leave(uid)
                self._failures.pop(uid, None)
                self._assumed.forget(uid)
                self._release(uid)
            case PodWaiting():
                self._arrive(sight)
            case _:
                assert_never(sight)

    def reserve(self, reserved: ReservedCards) -> None:
        """Set the ledger's promised cards, by node and card; pods that wait there are looked at again."""
        before, self._board.reserved = self._board.reserved, reserved
        for node in {*before, *reserved}:
            if before.get(node) != reserved.get(node):
                self._wake(self._board.names_of(node))

    def requeue_all(self) -> None:
        """Look at all waiting pods again."""
        for uid in self._waiting:
            self._queue(uid)

    def _all_seen(self) -> None:
        self._fresh = True
        self._listed.set()
        self.requeue_all()

    def _arrive(self, sight: PodWaiting) -> None:
        uid = sight.pod.uid
        former = self._waiting.get(uid)
        told, told_at = (former.told, former.told_at) if former is not None else (None, -inf)
        self._leave(uid)
        if sight.gated:
            self._release(uid)
            return
        self._waiting[uid] = _Waiting(sight.pod, sight.mapped, sight.told or told, told_at)
        if sight.mapped.entry is not None:
            self._for_node.setdefault(sight.mapped.entry.node, set()).add(uid)
        if uid not in self._assumed:  # else it may be an older state of a pod that is being bound
            self._release(uid)
            self._queue(uid)

    def _leave(self, uid: str) -> None:
        self._to_tell.pop(uid, None)
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
        looked = 0
        while True:
            await self._work.wait()
            while self._to_look_at:
                looked += 1
                if looked % _AT_A_TIME == 0:
                    await asyncio.sleep(0)
                await self._turns.acquire()
                try:
                    found = self._next()
                except BaseException:
                    self._turns.release()
                    raise
                if found is None:
                    self._turns.release()
                else:
                    group.create_task(self._bind(*found))
            self._work.clear()

    def _next(self) -> tuple[_Waiting, Bind, AssumedPod] | None:
        """Decide on one pod; its bind, if it is to be bound."""
        if not self._to_look_at:
            return None
        uid = self._to_look_at.popleft()
        self._queued.discard(uid)
        waiting = self._waiting.get(uid)
        if waiting is None or uid in self._assumed:
            return None
        if not self._fresh or self._ending or self._leads_for_s() <= 0:
            return None  # who leads anew looks at everybody
        decision = self._board.place(waiting.mapped, self._rules.overlap)
        match decision:
            case Bind():
                assumed = AssumedPod(waiting.pod, decision.node, asyncio.get_running_loop().time())
                self._assumed.add(assumed)
                self._to_tell.pop(uid, None)
                self._board.take(uid, decision.node, waiting.mapped.burden)
                return waiting, decision, assumed
            case Wait():
                self._note_decision(uid, waiting, decision)
                return None
            case _:
                assert_never(decision)

    async def _bind(self, waiting: _Waiting, decision: Bind, assumed: AssumedPod) -> None:
        pod, problem = waiting.pod, None
        try:
            await self._assumed.bind(assumed, self._leads_for_s())
        except (PodChangedError, BindRefusedError, BindUnansweredError) as failed:
            problem = failed
        finally:
            self._turns.release()
        if problem is not None:
            await self._has_failed(assumed, problem)
            return
        self._failures.pop(pod.uid, None)
        _log.info("bound", pod=str(pod), node=decision.node)
        message = f"Successfully assigned {pod} to {decision.node}"
        self._cluster.add_event(pod, "Scheduled", message, warning=False)
        if decision.warning is not None:
            self._cluster.add_event(pod, "DeviceShared", decision.warning, warning=True)

    async def _has_failed(self, assumed: AssumedPod, problem: Exception) -> None:
        """A pod was not bound, or nobody knows: it is tried again."""
        pod = assumed.pod
        _log.warning("a pod could not be bound; trying again", pod=str(pod), why=str(problem))
        if isinstance(problem, BindRefusedError):
            self._cluster.add_event(pod, "FailedScheduling", str(problem), warning=True)
        failures = self._failures.get(pod.uid, 0) + 1
        if pod.uid in self._assumed:  # else it was seen bound or gone meanwhile
            self._failures[pod.uid] = failures
        pause_s = min(self._rules.longest_retry_s, self._rules.retry_s * 2 ** min(failures - 1, 16))
        assumed.again_s = asyncio.get_running_loop().time() + pause_s
        if not isinstance(problem, BindUnansweredError):
            # A pod that has changed is seen to have soon, and is then none that waits; else it is tried again.
            await asyncio.sleep(pause_s)
            self._assumed.release(assumed)

    def _requeue(self, assumed: AssumedPod) -> None:
        """Free the cards of a pod that was not bound, as far as is known. If it still waits, look at it again."""
        uid = assumed.pod.uid
        self._release(uid)
        if uid in self._waiting:
            self._queue(uid)
        else:
            self._failures.pop(uid, None)

    def _note_decision(self, uid: str, waiting: _Waiting, decision: Wait) -> None:
        """Queue a report of why a pod waits, unless the last one says so or is recent and much the same.

        Among many pods, each change changes what all wait for.
        """
        if f"{decision.obstacle}: {decision.message}" == waiting.told:
            self._to_tell.pop(uid, None)
            return
        alike = waiting.told is not None and waiting.told.startswith(f"{decision.obstacle}: ")
        if alike and asyncio.get_running_loop().time() < waiting.told_at + self._rules.retell_s:
            return
        self._to_tell[uid] = decision
        self._untold.set()

    async def _report_waiting_pods(self) -> None:
        while True:
            await self._untold.wait()
            while self._to_tell:
                uid = next(iter(self._to_tell))
                decision = self._to_tell.pop(uid)
                if self._leads_for_s() > 0 and not self._ending:
                    await self._report(self._waiting[uid], decision)
            self._untold.clear()

    async def _report(self, waiting: _Waiting, decision: Wait) -> None:
        waiting.told = f"{decision.obstacle}: {decision.message}"
        waiting.told_at = asyncio.get_running_loop().time()
        self.told += 1
        try:
            await self._cluster.report_waiting(waiting.pod, decision.obstacle, decision.message)
        except PodChangedError:
            self._has_changed(waiting)
        except ClusterUnavailableError as problem:
            _log.warning("a pod could not be told why it waits", pod=str(waiting.pod), why=str(problem))
            waiting.told = None  # the next decision reports it again
        except Exception:
            waiting.told = None
            raise
        else:
            self._cluster.add_event(waiting.pod, "FailedScheduling", decision.message, warning=True)

    def _has_changed(self, waiting: _Waiting) -> None:
        """A pod was not told, as it is not what was seen: it is looked at again as it is, which may be known by now."""
        waiting.told = None
        uid = waiting.pod.uid
        now = self._waiting.get(uid)
        if now is not None and now is not waiting:
            now.told = None
            self._queue(uid)
