"""Assumed pods, which count on a node before they are seen there: bind them, and find out what became of a bind.

A pod counts until it is seen bound or gone, or is known not to have been bound. Silence says nothing: a bind without an
answer may still be carried out for some seconds.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

import structlog

from pod_scheduling.ports.pod_binding import BindRefusedError, PodBindings, PodChangedError, PodRef
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)

_LOOKS_AT_ONCE = 16


class BindUnansweredError(Exception):
    """It is not known whether the pod was or will be bound; the text says why."""


@dataclass(slots=True)
class AssumedPod:
    """A pod, its node, and what is to be written on the pod. `begun`: a bind was asked for here, and `calls` are under
    way.

    Till `binding_until_s` another may be about to bind it, as far as anybody can see. It is looked up all the same, not
    before `again_s`.
    """

    pod: PodRef
    node: str
    since_s: float
    marks: Mapping[str, str] = field(default_factory=dict)
    begun: bool = False
    calls: int = 0
    answered: bool = True
    unclear_until_s: float = -inf
    binding_until_s: float = -inf
    again_s: float = -inf


@dataclass(slots=True)
class BindCounts:
    """What became of binds since the start."""

    bound: int = 0
    refused: int = 0
    unanswered: int = 0
    given_up: int = 0


A = TypeVar("A", bound=AssumedPod)


class AssumedPods(Generic[A]):
    """All that count now, by the pod's uid. One without an answer is unclear for `unclear_s` seconds; one that is not
    seen on its node for `assumed_s` is looked up. `free_gpus` is called for a pod that was not bound."""

    def __init__(
        self, bindings: PodBindings, unclear_s: float, assumed_s: float, free_gpus: Callable[[A], None]
    ) -> None:
        self._bindings = bindings
        self._unclear_s = unclear_s
        self._assumed_s = assumed_s
        self._free_gpus = free_gpus
        self._by_uid: dict[str, A] = {}
        self._unclear_until_s = -inf
        self.counts = BindCounts()

    def __len__(self) -> int:
        return len(self._by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    @property
    def settled(self) -> bool:
        """Whether no requested bind can still be carried out."""
        return self._now_s() >= self._unclear_until_s and not any(pod.calls for pod in self._by_uid.values())

    def add(self, assumed: A) -> None:
        """Count a pod from now on. The caller assumes its cards."""
        self._by_uid[assumed.pod.uid] = assumed

    def forget(self, uid: str) -> None:
        """Stop counting a pod that was seen on a node or is gone."""
        self._by_uid.pop(uid, None)

    async def bind(self, assumed: A, within_s: float) -> None:
        """Bind a pod; this replica leads for `within_s` more seconds.

        Raises PodChangedError, BindRefusedError and BindUnansweredError; the pod counts on after all of them.
        """
        if within_s <= 0:
            self.counts.refused += 1
            raise BindRefusedError("This replica does not lead any more.")
        assumed.begun = True
        assumed.calls += 1
        try:
            async with asyncio.timeout(within_s):
                await self._bindings.bind(assumed.pod, assumed.node, assumed.marks)
        except (PodChangedError, BindRefusedError):
            self.counts.refused += 1
            raise
        except Exception as problem:
            self._is_unclear(assumed)
            self.counts.unanswered += 1
            why = str(problem) or "no answer in time"
            unexpected = not isinstance(problem, ClusterUnavailableError | TimeoutError)
            log = _log.error if unexpected else _log.warning
            log("a bind was not answered", pod=str(assumed.pod), why=why, exc_info=unexpected)
            raise BindUnansweredError(
                f"Whether {assumed.pod} is bound to {assumed.node} is not known: {why}"
            ) from problem
        except asyncio.CancelledError:
            self._is_unclear(assumed)
            raise
        finally:
            assumed.calls -= 1
        self.counts.bound += 1
        assumed.since_s = self._now_s()

    def release(self, assumed: A) -> None:
        """Stop counting a pod whose bind was refused, unless another call may still be carried out."""
        if not assumed.calls and assumed.unclear_until_s <= self._now_s():
            self._give_up(assumed)

    async def run(self) -> None:
        """Look up pods that were not seen on their nodes, some at a time, until cancelled."""
        looked_up: set[str] = set()

        async def look_up(assumed: A) -> None:
            try:
                await self._find_out(assumed)
            finally:
                looked_up.discard(assumed.pod.uid)

        async with asyncio.TaskGroup() as looks:
            while True:
                await asyncio.sleep(min(1.0, self._assumed_s / 4))
                for uid, assumed in self._by_uid.items():
                    if len(looked_up) < _LOOKS_AT_ONCE and uid not in looked_up and self._is_due(assumed):
                        looked_up.add(uid)
                        looks.create_task(look_up(assumed))

    def _is_due(self, assumed: A) -> bool:
        over_s = assumed.since_s + self._assumed_s * assumed.answered
        return not assumed.calls and max(assumed.unclear_until_s, assumed.again_s, over_s) <= self._now_s()

    async def _find_out(self, assumed: A) -> bool:
        """Look up a pod whose bind is over; whether the API server answered.

        One that could not be looked up is looked up again after `unclear_s`.
        """
        uid = assumed.pod.uid
        try:
            node = await self._node_of(assumed)
        except ClusterUnavailableError as problem:
            _log.warning("whether a pod is bound is not known; asking again", pod=str(assumed.pod), why=str(problem))
            return self._look_again(assumed)
        except Exception:  # noqa: BLE001 - it is logged, and not known is not known
            _log.exception("whether a pod is bound could not be asked", pod=str(assumed.pod))
            return self._look_again(assumed)
        now_s = self._now_s()
        if self._by_uid.get(uid) is not assumed or assumed.calls:
            return True
        if node is not None:
            assumed.since_s, assumed.answered = now_s, True  # it counts until the watch shows it
        elif assumed.binding_until_s > now_s:
            assumed.again_s = min(now_s + self._assumed_s, assumed.binding_until_s)
        else:
            if assumed.begun:
                self.counts.given_up += 1
                _log.warning(
                    "a pod was not bound as decided; its cards are free again", pod=str(assumed.pod), node=assumed.node
                )
            self._give_up(assumed)
        return True

    def _look_again(self, assumed: A) -> bool:
        assumed.again_s = max(assumed.again_s, self._now_s() + self._unclear_s)
        return False

    async def _node_of(self, assumed: A) -> str | None:
        return await self._bindings.node_of(assumed.pod)

    def _is_unclear(self, assumed: A) -> None:
        assumed.answered = False
        assumed.unclear_until_s = self._unclear_until_s = self._now_s() + self._unclear_s

    def _give_up(self, assumed: A) -> None:
        if self._by_uid.get(assumed.pod.uid) is assumed:
            del self._by_uid[assumed.pod.uid]
            self._free_gpus(assumed)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
