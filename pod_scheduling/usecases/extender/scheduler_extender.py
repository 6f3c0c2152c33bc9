"""Answering schedulers about cards: from what was seen, without waiting; and binding, where they leave that to us.

Between the check of a decision and the moment from which it counts nothing else happens, so what is decided for one is
never given to another. Until when it counts is said in `decided_pods`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, assert_never

from pod_scheduling.domain.extender.board import ExtenderBoard, Refused
from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.domain.extender.share_claims import ShareClaims
from pod_scheduling.domain.maps.map_placement import ReservedCards
from pod_scheduling.ports.card_cluster import CardCluster, CardNodeSeen, CardPodSeen, CardSight, QuotasGone, QuotasSeen
from pod_scheduling.ports.extender import Binding, Candidates, Filtered, NotSyncedError
from pod_scheduling.ports.keeping import Keep, not_kept
from pod_scheduling.ports.pod_binding import NamespaceSeen, NodeGone, PodGone
from pod_scheduling.usecases.assumed_pods import BindCounts
from pod_scheduling.usecases.extender.bind_pods import PodBinder
from pod_scheduling.usecases.extender.decided_pods import DecidedPods
from pod_scheduling.usecases.extender.keep_claims import ClaimKeeper
from pod_scheduling.usecases.extender.mark_bound_pods import BoundPodMarker
from pod_scheduling.usecases.extender.nudge_pods import PodNudger
from pod_scheduling.usecases.extender.quota_source import QuotaSource
from pod_scheduling.usecases.extender.rules import ExtendRules
from pod_scheduling.usecases.extender.suggested_nodes import SuggestedNodes
from pod_scheduling.usecases.extender.who_binds import WhoBinds
from reservation_core.ports.clock import Clock


class SchedulerExtender:
    """Follows one cluster, and answers. See pod_scheduling.ports.extender.Extender.

    `leads_for_s` says for how many seconds this replica surely leads, `ledger_known` whether it is known what the
    ledger has promised: without either, nothing is answered.
    """

    def __init__(
        self,
        cluster: CardCluster,
        board: ExtenderBoard,
        rules: ExtendRules,
        clock: Clock,
        leads_for_s: Callable[[], float] = lambda: inf,
        ledger_known: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cluster = cluster
        self._board = board
        self._cards = board.cards
        self._rules = rules
        self._clock = clock
        self._leads_for_s = leads_for_s
        self._ledger_known = ledger_known
        self._claims = ClaimKeeper(cluster, board.cards, rules.claim_s, rules.binding_s)
        self._shares = ShareClaims(board.cards.usage)
        self._waiting: dict[str, CardPod] = {}
        self._learnt: set[str] = set()
        self.nudger = PodNudger(cluster, clock, self._waiting, lambda: self.synced)
        self.quotas = QuotaSource(cluster, board.cards.usage, self.nudger.put)
        self.marker = BoundPodMarker(cluster, board, clock, lambda: self.synced)
        self._listed = False
        self._fresh = True
        self._reads_again = False
        self._others_until_s = -inf
        self._decided = DecidedPods(cluster, board.cards, rules)
        self.who_binds = WhoBinds(rules.assume_at)
        self._binder = PodBinder(
            cluster, board, rules, clock, self._decided, self._waiting, self.who_binds, leads_for_s
        )
        self._suggested = SuggestedNodes()

    @property
    def synced(self) -> bool:
        """Whether questions can be answered."""
        return self.silence is None

    @property
    def counts(self) -> BindCounts:
        return self._decided.counts

    @property
    def waiting(self) -> int:
        """The number of pods on no node."""
        return len(self._waiting)

    @property
    def assumed(self) -> int:
        """The number of assumed pods."""
        return len(self._decided)

    @property
    def claimed(self) -> int:
        """The number of pods with a claim."""
        return self._cards.usage.claims

    @property
    def interruption(self) -> str | None:
        """The reason why the cluster cannot be followed now."""
        return self._cluster.problem

    async def run(self, keep: Keep = not_kept) -> None:
        """Follow the cluster until cancelled; `keep` begins each of its parts again that fails."""
        self._others_may_bind()
        async with asyncio.TaskGroup() as group:
            group.create_task(keep("follow", self._follow), name="follow")
            group.create_task(keep("old_binds", self._wait_for_old_binds), name="old binds")
            group.create_task(keep("assumed_pods", self._decided.run), name="assumed pods")
            group.create_task(keep("claims", self._claims.run), name="claims")
            group.create_task(keep("mark", self.marker.run), name="mark")
            group.create_task(keep("nudge", self.nudger.run), name="nudge")

    async def _follow(self) -> None:
        try:
            await self._cluster.follow(self.see, self._all_seen)
        except Exception:
            self._fresh = False  # what is in memory is not all that there is: nothing is answered by it
            raise

    def lead(self) -> None:
        """Begin to lead. Nothing is answered before everything was read anew: the former leader's last binds may not
        have been seen here yet."""
        self._fresh = False
        self._others_may_bind()
        self._cluster.read_anew()

    def _others_may_bind(self) -> None:
        """Where only the filter is asked, wait for pods that an earlier process let through."""
        if self.who_binds.maybe_others:
            self._others_until_s = self._now_s() + self._rules.unclear_s

    @property
    def _begins(self) -> bool:
        """Whether pods that an earlier process let through may still be bound."""
        if not self.who_binds.maybe_others:
            return False
        return not (self._listed and self._fresh) or self._now_s() < self._others_until_s

    def end(self) -> None:
        self._binder.ending = True

    @property
    def settled(self) -> bool:
        """Whether no requested bind can still be carried out."""
        return self._binder.ending and self._decided.settled

    def reserve(self, reserved: ReservedCards) -> None:
        """Set the ledger's promised cards."""
        self._cards.reserve(reserved)

    # Observations

    def see(self, sight: CardSight) -> None:
        """Take in a change of the cluster."""
        match sight:
            case CardNodeSeen(node):
                self._cards.put_node(node)
            case NodeGone(name):
                self._cards.drop_node(name)
                self._shares.forget_node(name)
            case CardPodSeen():
                self._see_pod(sight)
            case PodGone(uid):
                self._waiting.pop(uid, None)
                self._decided.forget(uid)
                self._suggested.forget(uid)
                self.who_binds.forget(uid)
                self._learnt.discard(uid)
                self._cards.drop_pod(uid)
            case NamespaceSeen(name, enforced):
                self._cards.enforce(name, enforced=enforced)
            case QuotasSeen() | QuotasGone():
                self.quotas.see(sight)
            case _:
                assert_never(sight)

    def _see_pod(self, seen: CardPodSeen) -> None:
        uid = seen.pod.uid
        if uid not in self._learnt and not seen.pod.asked.none:
            self._learnt.add(uid)
            self._board.learn(seen.pod)
        if seen.node is None:
            if not self._cards.is_bound(uid):  # else it is an older state
                if uid not in self._waiting:
                    self.nudger.first_seen(seen.pod)
                self._waiting[uid] = seen.pod
                self._decided.see(seen)
                self._claims.see(seen)
                if seen.nominated is not None and self._begins and not seen.pod.asked.none:
                    self._decided.choose(seen, seen.nominated)  # by a process before this one
            return
        self._waiting.pop(uid, None)
        self._decided.forget(uid)
        self._suggested.forget(uid)
        self._cards.put_bound(seen.pod, seen.node, seen.footprint)
        self.who_binds.seen_bound(seen.pod)
        if self.who_binds.maybe_others and seen.pod.asked.shares and not seen.marked:
            self.marker.put(seen)

    def _all_seen(self) -> None:
        self._listed = self._fresh = True
        if self._reads_again:
            self._binder.old_binds_over.set()

    # Questions

    async def turn(self) -> None:
        """Wait while many binds are under way."""
        await self._binder.under_way.turn()

    def filter(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        """Which nodes fit. Raises NotSyncedError.

        Another question about a pod means that it is not about to be bound by what it was allocated before.
        """
        self._require_sync()
        asking = self._cluster.pod_of(pod)
        self._decided.put_off(asking.uid)
        found = self._board.filter(asking, nodes)
        if self.who_binds.counts_at_filter(asking):
            found = self._board.beside_claims(asking, found, self._shares)
            self._claims.claim(asking, self._board.models_of(found.fitting))
            self._shares.put(asking, found.fitting)
        self._let_through(asking, found.fitting)
        return Filtered(found.fitting, found.failed, found.unresolvable)

    def choose(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        """Which nodes fit; with `Candidates.BEST` the best alone, and one that was not suggested before while there are
        others. Raises NotSyncedError.

        Another question about a pod means that it is not about to be bound by what was answered before.
        """
        self._require_sync()
        asked = self._cluster.asked_of(pod)
        tells_all = self._rules.candidates is Candidates.ALL or asked.pod.has_preferences or asked.pod.asked.none
        found = self._all(asked, nodes) if tells_all else self._best(asked, nodes)
        if not found.fitting:
            self._decided.put_off(asked.pod.uid)
            self._claims.put_off(asked.pod.uid)
        self._let_through(asked.pod, found.fitting)
        return found

    def _let_through(self, pod: CardPod, nodes: Sequence[str]) -> None:
        """Find out who binds a pod, unless it is bound already or a bind of ours may still be carried out."""
        if not self._cards.is_bound(pod.uid) and self._decided.bind_of(pod.uid) is None:
            self.who_binds.let_through(pod, nodes)

    def _all(self, asked: CardPodSeen, nodes: Sequence[str]) -> Filtered:
        found = self._board.filter(asked.pod, nodes)
        if self.who_binds.counts_at_filter(asked.pod):
            self._claims.claim(asked.pod, self._board.models_of(found.fitting), asked)
        return Filtered(found.fitting, found.failed, found.unresolvable)

    def _best(self, asked: CardPodSeen, nodes: Sequence[str]) -> Filtered:
        asking = asked.pod
        for among in self._suggested.rounds(asking.uid, nodes):
            found = self._board.choose(asking, among)
            if found.fitting:
                break
        if found.fitting and not self._cards.is_bound(asking.uid):
            self._suggested.put(asking.uid, found.fitting[0])
            if self.who_binds.counts_at_filter(asking):
                self._decided.choose(asked, found.fitting[0])
        return Filtered(found.fitting, found.failed, found.unresolvable)

    def prioritize(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Sequence[int]:
        """How good each node is, 0 to 10. Raises NotSyncedError."""
        self._require_sync()
        return self._board.scores(self._cluster.pod_of(pod), nodes)

    async def bind(self, binding: Binding) -> None:
        """Decide on cards, write the decision and bind. Raises NotSyncedError and BindRefusedError."""
        self.who_binds.forget(binding.uid)
        self._require_sync()
        await self._binder.bind(binding, self._require_sync)

    def allocate(self, pod: Mapping[str, Any], node: str, *, pipelined: bool = False) -> str | None:
        """A scheduler that binds by itself has given a pod to a node; it may still take it back. Why it may not go
        there, or None: then it counts there, and nowhere else, from now on. Raises NotSyncedError.

        A `pipelined` pod does not count: no scheduler binds it by that, nor is it taken back."""
        self._require_sync()
        asked = self._cluster.asked_of(pod)
        decision = self._board.decide(asked.pod, node)
        if isinstance(decision, Refused):
            return decision.reason
        if pipelined:
            self._claims.drop(asked.pod.uid)
        elif self.who_binds.counts_at_filter(asked.pod) and not asked.pod.asked.none:
            self._decided.choose(asked, node, decision.footprint if asked.pod.asked.shares else None)
        return None

    def deallocate(self, pod: Mapping[str, Any], *, waits: bool) -> None:
        """It has taken it back: what was allocated counts no more. `waits`: the pod is not about to be bound; else
        somebody may be ending it on its node, where it counts till it is gone."""
        if waits:
            uid = self._cluster.pod_of(pod).uid
            self._claims.drop(uid)
            self._decided.take_back(uid)

    # Background work

    async def _wait_for_old_binds(self) -> None:
        """What a process before this one asked for last may still be carried out: only after that, and when everything
        was read once more, something is bound. Where there is a lease it has seen to that."""
        if self._leads_for_s() < inf:
            self._binder.old_binds_over.set()
            return
        await asyncio.sleep(self._rules.unclear_s)
        self._reads_again = True
        self._cluster.read_anew()

    def _require_sync(self) -> None:
        why = self.silence
        if why is not None:
            raise NotSyncedError(why)

    @property
    def silence(self) -> str | None:
        """Why nothing can be answered now."""
        if not (self._listed and self._fresh):
            problem = self._cluster.problem
            if problem is None:
                return "gpu-admission is still reading nodes and pods; ask again."
            return f"gpu-admission can't read the cluster: {problem.rstrip('.')}. It goes on trying."
        if self._now_s() < self._others_until_s:
            return "Pods that were let through before gpu-admission began may still be bound; ask again."
        if not self.quotas.known:
            return f"The quotas can't be read: {self.quotas.problem}. Mend the ConfigMap; nothing is answered before."
        if not self._ledger_known():
            return "It is not known which GPUs are promised: the database does not answer."
        if self._leads_for_s() <= 0:
            return "Another replica leads; ask that one."
        return None

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
