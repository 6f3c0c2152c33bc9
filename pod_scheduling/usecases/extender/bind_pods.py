"""Binding pods for schedulers that leave that to us: decide on cards, write the decision and bind, all in one call."""

import asyncio
from collections.abc import Callable, Mapping
from typing import assert_never

import structlog

from pod_scheduling.domain.extender.board import ExtenderBoard, Refused
from pod_scheduling.domain.extender.card_footprints import Placed
from pod_scheduling.domain.extender.card_marks import marks_of
from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.card_cluster import CardCluster, CardPodSeen
from pod_scheduling.ports.extender import Binding
from pod_scheduling.ports.pod_binding import BindRefusedError, PodChangedError, PodGone, PodRef
from pod_scheduling.usecases.assumed_pods import BindUnansweredError
from pod_scheduling.usecases.extender.binds_under_way import BindsUnderWay
from pod_scheduling.usecases.extender.decided_pods import DecidedPods, Decision
from pod_scheduling.usecases.extender.rules import ExtendRules
from pod_scheduling.usecases.extender.who_binds import WhoBinds
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)


class PodBinder:
    """`waiting` are the pods that were seen on no node, by uid, as they are now; `old_binds_over` is set by who knows
    that nothing a process before this one asked for can still be carried out; `ending`: no more binds are begun."""

    def __init__(
        self,
        cluster: CardCluster,
        board: ExtenderBoard,
        rules: ExtendRules,
        clock: Clock,
        decided: DecidedPods,
        waiting: Mapping[str, CardPod],
        who_binds: WhoBinds,
        leads_for_s: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._board = board
        self._cards = board.cards
        self._rules = rules
        self._clock = clock
        self._decided = decided
        self._waiting = waiting
        self._who_binds = who_binds
        self._leads_for_s = leads_for_s
        self.under_way = BindsUnderWay(rules.binds_at_once, rules.pause_s)
        self.old_binds_over = asyncio.Event()
        self.ending = False

    async def bind(self, binding: Binding, require_sync: Callable[[], None]) -> None:
        """See pod_scheduling.ports.extender.Extender; after waiting `require_sync` raises where nothing can be said any
        more."""
        ref = PodRef(binding.namespace, binding.name, binding.uid)
        pod = self._waiting.get(ref.uid) or await self._look_up(ref, binding.node)
        if pod is None:
            return None
        if not pod.asked.none:
            await self.old_binds_over.wait()
        await self._decided.wait_known_where(ref, binding.node)
        require_sync()
        self._who_binds.bound_by_us(pod)
        begun = self._decide(ref, pod, binding.node)
        return None if begun is None else await self._carry_out(begun)

    def _decide(self, ref: PodRef, pod: CardPod, node: str) -> Decision | None:
        """From here on the decision counts. None: the pod is there already. Raises BindRefusedError."""
        if self._cards.is_bound(ref.uid):
            self._require_on(ref, self._cards.node_of(ref.uid), node)
            return None
        if self.ending:
            raise BindRefusedError("gpu-admission is ending; ask again, another replica answers.")
        begun = self._decided.bind_of(ref.uid)
        if begun is not None and begun.node == node:
            return begun  # asked once more: the same cards, whoever's call comes through
        decision = self._board.decide(pod, node)
        match decision:
            case Refused(reason):
                self._decided.counts.refused += 1
                raise BindRefusedError(reason)
            case Placed():
                marks = marks_of(decision, node, self._clock.now()) if pod.asked.shares else {}
            case _:
                assert_never(decision)
        self._cards.assume(pod, node, decision.footprint if pod.asked.shares else None)
        made = Decision(ref, node, _now_s(), marks)
        self._decided.add(made)
        return made

    async def _carry_out(self, begun: Decision) -> None:
        self.under_way.begin()
        try:
            await self._decided.bind(begun, min(self._rules.bind_s, self._leads_for_s()))
        except (PodChangedError, BindRefusedError, BindUnansweredError) as problem:
            self._decided.release(begun)
            raise BindRefusedError(str(problem)) from problem
        finally:
            self.under_way.end()
        _log.debug("bound", pod=str(begun.pod), node=begun.node, cards=begun.marks)

    async def _look_up(self, ref: PodRef, node: str) -> CardPod | None:
        """A pod that was not seen waiting; None for one that is on this node already. Raises BindRefusedError.

        It is not taken in: of what the watch has not told it may never tell that it is gone.
        """
        if self._cards.is_bound(ref.uid):
            self._require_on(ref, self._cards.node_of(ref.uid), node)
            return None
        try:
            found = await self._cluster.read_pod(ref)
        except ClusterUnavailableError as problem:
            raise BindRefusedError(f"{ref} could not be looked up: {problem}") from problem
        match found:
            case PodGone():
                raise BindRefusedError(f"There is no pod {ref} of the uid {ref.uid} any more.")
            case CardPodSeen():
                if found.node is None:
                    return found.pod
                self._require_on(ref, found.node, node)
                return None
            case _:
                assert_never(found)

    @staticmethod
    def _require_on(ref: PodRef, where: str | None, node: str) -> None:
        if where != node:
            raise BindRefusedError(f"{ref} is on {where} already.")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
