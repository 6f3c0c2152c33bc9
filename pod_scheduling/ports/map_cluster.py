"""The cluster, as the scheduler of mapped pods sees and changes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pod_scheduling.domain.maps.map_placement import Burden, MapNode, MappedPod
from pod_scheduling.ports.pod_binding import NamespaceSeen, NodeGone, PodBindings, PodGone, PodRef


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node as it is now."""

    node: MapNode


@dataclass(frozen=True, slots=True)
class PodBound:
    """A pod that is on a node and has not ended; not only ours."""

    pod: PodRef
    node: str
    burden: Burden


@dataclass(frozen=True, slots=True)
class PodWaiting:
    """A pod of ours that is on no node. `gated`: it must not be looked at yet; `told`: what it was told last."""

    pod: PodRef
    mapped: MappedPod
    gated: bool = False
    told: str | None = None


Sight = NamespaceSeen | NodeSeen | NodeGone | PodBound | PodWaiting | PodGone


class MapCluster(PodBindings, Protocol):
    """The cluster for the map scheduler. Every method raises ClusterUnavailableError."""

    async def follow(self, handle: Callable[[Sight], None], listed: Callable[[], None]) -> None:
        """Call `handle` for everything once, then `listed`, then `handle` for every change. Goes on through whatever
        may pass, until cancelled."""
        ...

    def read_anew(self) -> None:
        """Have `follow` begin with everything again, as it is after this call, and with `listed` when that was all."""
        ...

    async def report_waiting(self, pod: PodRef, reason: str, message: str) -> None:
        """Write on the pod why it waits. A pod that is gone, or another of its name, is left alone.

        Raises PodChangedError for one that is not as it was seen: it may have been bound meanwhile.
        """
        ...

    def add_event(self, pod: PodRef, reason: str, message: str, *, warning: bool) -> None:
        """Queue an Event about a pod."""
        ...
