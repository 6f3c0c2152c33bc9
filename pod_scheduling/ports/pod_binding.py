"""Binding pods to nodes, and observations that all binders need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


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
class NodeGone:
    """A node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod that is no more, has ended, or does not count where it is."""

    uid: str


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    """Whether bookings are enforced in a namespace: only there does the webhook write what pods have booked."""

    name: str
    enforced: bool


class PodChangedError(Exception):
    """The pod is gone, another one, or bound. The watch will show its state."""


class BindRefusedError(Exception):
    """The pod does not go to that node; the text says why, and what to do."""


class PodBindings(Protocol):
    """Binds pods. Every method raises ClusterUnavailableError."""

    async def bind(self, pod: PodRef, node: str, marks: Mapping[str, str] = {}) -> None:
        """Bind a pod and write annotations on it, at once or not at all; or find that it is bound there already.

        Raises PodChangedError and BindRefusedError. After ClusterUnavailableError, or when it is cancelled, nobody
        knows: the bind may come some seconds late.
        """
        ...

    async def node_of(self, pod: PodRef) -> str | None:
        """The node that a pod is on now; None for one that is on none, has ended, or is no more."""
        ...
