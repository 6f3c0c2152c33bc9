"""From when on cards count as a pod's: by the setting, or by which program is seen to bind such pods.

Whether a scheduler leaves binding to us follows from its configuration and from what a pod asks for: so pods of one
scheduler that ask for the same kinds of cards are bound by the same. Unless it is known that we bind them, they count
from the question which nodes would do: that is never wrong, it only holds a quota for a moment longer.
"""

from collections.abc import Collection
from typing import NamedTuple, assert_never

import structlog

from pod_scheduling.domain.extender.cards_in_use import CardPod
from pod_scheduling.ports.extender import AssumeAt

_log = structlog.get_logger(__name__)
_MOST_PODS = 10_000
_MOST_KINDS = 1_000
_SHOWN = 3


class _Kind(NamedTuple):
    """Pods that one program binds."""

    scheduler: str
    shares: bool
    whole: bool

    def __str__(self) -> str:
        asked = " and ".join(("shares",) * self.shares + ("whole GPUs",) * self.whole)
        return f"{self.scheduler or 'a scheduler without a name'} ({asked})"


class WhoBinds:
    """`beside_us` counts the pods that were let through to be bound by us, and were bound by another."""

    def __init__(self, assume_at: AssumeAt) -> None:
        self._assume_at = assume_at
        self._passed: dict[str, None] = {}
        self._ours: set[_Kind] = set()
        self._others: dict[_Kind, None] = {}
        self.beside_us = 0

    @property
    def maybe_others(self) -> bool:
        """Whether there may be schedulers that bind by themselves."""
        return self._assume_at is not AssumeAt.BIND

    @property
    def problem(self) -> str | None:
        """A contradiction between setting and observation, in a sentence; None without one."""
        if self._assume_at is not AssumeAt.BIND or not self._others:
            return None
        who = ", ".join(str(kind) for kind in list(self._others)[:_SHOWN])
        return (
            f"Pods are bound by their scheduler itself, while --assume-at=bind counts GPUs from our own bind on, so "
            f"quotas can be passed: {who}. Start with --assume-at=auto or filter, or give the extender a bindVerb."
        )

    def counts_at_filter(self, pod: CardPod) -> bool:
        """Whether a pod's cards count from the filter on."""
        match self._assume_at:
            case AssumeAt.FILTER:
                return True
            case AssumeAt.BIND:
                return False
            case AssumeAt.AUTO:
                return _kind(pod) not in self._ours
            case _:
                assert_never(self._assume_at)

    def let_through(self, pod: CardPod, nodes: Collection[str]) -> None:
        """Note a pod that passed the filter."""
        if self._assume_at is AssumeAt.FILTER or not nodes or pod.asked.none:
            return
        self._passed[pod.uid] = None
        if len(self._passed) > _MOST_PODS:
            del self._passed[next(iter(self._passed))]

    def bound_by_us(self, pod: CardPod) -> None:
        """Note that a scheduler leaves binding such pods to us."""
        self.forget(pod.uid)
        if self._assume_at is AssumeAt.AUTO and _kind(pod) not in self._others and len(self._ours) < _MOST_KINDS:
            self._ours.add(_kind(pod))

    def seen_bound(self, pod: CardPod) -> None:
        """Note a bound pod: one that passed the filter and that we did not bind was bound by its scheduler."""
        if pod.uid not in self._passed:
            return
        del self._passed[pod.uid]
        kind = _kind(pod)
        counted = self.counts_at_filter(pod)
        self._ours.discard(kind)
        self.beside_us += not counted
        if kind in self._others or len(self._others) >= _MOST_KINDS:
            return
        self._others[kind] = None
        if counted:
            _log.info("a scheduler binds pods by itself; they count from its question on", who=str(kind))
        else:
            told = self.problem or "they count from its question on from now on"
            _log.warning("a pod that counted from our bind on was bound by its scheduler", who=str(kind), what=told)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone, or that we are asked to bind."""
        self._passed.pop(uid, None)


def _kind(pod: CardPod) -> _Kind:
    return _Kind(pod.scheduler, pod.asked.shares, pod.asked.plugin > 0)
