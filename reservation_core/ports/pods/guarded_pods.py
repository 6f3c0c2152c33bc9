"""The cluster as the enforcement sees it: users' pods, which it marks and ends."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from reservation_core.domain.pods.pod_endings import GuardedPod


class BudgetRefusedError(Exception):
    """A disruption budget protects the pod for now; the text is the API server's."""


class EndRefusedError(Exception):
    """The API server refuses to end this pod; the text says why."""


class GuardedPods(Protocol):
    """Pods that use GPUs or are marked. Every method but `add_event` raises ClusterUnavailableError."""

    async def list_pods(self) -> Mapping[str, GuardedPod]:
        """All of them as they are now, by uid."""

    async def follow(self, show: Callable[[Mapping[str, GuardedPod]], None]) -> None:
        """Call `show` with all of them, now and after every change, until cancelled; the mapping changes in place."""

    async def mark_end(self, pod: GuardedPod, end: datetime) -> None:
        """Write on the pod when it has to end. A deleted pod, or another one of the same name, is left alone."""

    async def evict(self, pod: GuardedPod, grace_s: int) -> None:
        """Evict the pod; returns also if it is gone. Raises BudgetRefusedError and EndRefusedError."""

    async def delete(self, pod: GuardedPod, grace_s: int) -> None:
        """Delete the pod, ignoring budgets. Raises EndRefusedError."""

    def add_event(self, pod: GuardedPod, reason: str, note: str) -> None:
        """Queue an Event about the pod."""

    async def write_events(self) -> None:
        """Write the queued Events."""
