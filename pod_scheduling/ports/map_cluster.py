"""The cluster, as the scheduler of mapped pods sees and changes it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pod_scheduling.domain.maps.map_placement import Burden, MapNode, MappedPod


@dataclass(frozen=True, slots=True)
class PodRef:
    """One pod, not another one of its name. `version` is the state of it that was seen; empty: any."""

    namespace: str
    name: str
    uid: str
    version: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node as it is now."""

    node: MapNode


@dataclass(frozen=True, slots=True)
class NodeGone:
    """There is no such node any more."""

    name: str


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


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod that is no more, has ended, or is none of ours and on no node."""

    uid: str


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    """Whether bookings are enforced in a namespace: only there does the webhook write what pods have booked."""

    name: str
    enforced: bool


Sight = NamespaceSeen | NodeSeen | NodeGone | PodBound | PodWaiting | PodGone


class PodChangedError(Exception):
    """The pod is not as it was thought to be: gone, another one, or bound. What it is now will be seen."""


class MappedBindRefusedError(Exception):
    """The API server will not bind this pod to this node; the text says why."""


class MapCluster(Protocol):
    """What the scheduler sees and does. Every method raises ClusterUnavailableError."""

    async def follow(self, handle: Callable[[Sight], None], listed: Callable[[], None]) -> None:
        """Call `handle` for everything once, then `listed`, then `handle` for every change. Goes on through whatever
        may pass, until cancelled."""
        ...

    def read_anew(self) -> None:
        """Have `follow` begin with everything again, as it is after this call, and with `listed` when that was all."""
        ...

    async def bind(self, pod: PodRef, node: str) -> None:
        """Bind a pod, or find that it is bound there. Raises PodChangedError and MappedBindRefusedError.

        After ClusterUnavailableError, or when it is cancelled, nobody knows: the bind may come a few seconds late.
        """
        ...

    async def node_of(self, pod: PodRef) -> str | None:
        """The node that a pod is on now; None for one that is on none, or is no more."""
        ...

    async def tell_waiting(self, pod: PodRef, reason: str, message: str) -> None:
        """Write on the pod why it waits. A pod that is gone, or another of its name, is left alone.

        Raises PodChangedError for one that is not as it was seen: it may have been bound meanwhile.
        """
        ...

    def tell_event(self, pod: PodRef, reason: str, message: str, *, warning: bool) -> None:
        """Have an Event about a pod written soon, for people."""
        ...
