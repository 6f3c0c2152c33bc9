"""The cluster, as those see and change it who end pods that people made."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from reservation_core.domain.pods.pod_endings import GuardedPod


class BudgetRefusedError(Exception):
    """A disruption budget keeps the pod for now; the text is the API server's."""


class EndRefusedError(Exception):
    """The API server will not end this pod; the text says why."""


class GuardedPods(Protocol):
    """Pods that use GPUs, or that are marked. Every method but `tell` raises ClusterUnavailableError."""

    async def look(self) -> Mapping[str, GuardedPod]:
        """All of them as they are now, by uid."""
        ...

    async def follow(self, show: Callable[[Mapping[str, GuardedPod]], None]) -> None:
        """Call `show` with all of them, and again after every change, until cancelled; it goes on to change."""
        ...

    async def mark_end(self, pod: GuardedPod, end: datetime) -> None:
        """Write on the pod when it has to go. A pod that is gone, or another one of its name, is left alone."""
        ...

    async def evict(self, pod: GuardedPod, grace_s: int) -> None:
        """Ask it to go; returns also when it is gone. Raises BudgetRefusedError and EndRefusedError."""
        ...

    async def delete(self, pod: GuardedPod, grace_s: int) -> None:
        """End it whatever any budget says. Raises EndRefusedError."""
        ...

    def tell(self, pod: GuardedPod, reason: str, note: str) -> None:
        """Have an Event about the pod written soon, for people."""
        ...

    async def tell_all(self) -> None:
        """Write what is still to be told."""
        ...
