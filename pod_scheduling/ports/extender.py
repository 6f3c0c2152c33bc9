"""The extender that schedulers call: look-ups in memory, and a binding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class AssumeAt(StrEnum):
    """From when on cards and quota count as a pod's: its binding, or already the question which nodes would do.

    `auto`: from the question on, unless such pods are seen to be bound by us.
    """

    AUTO = "auto"
    BIND = "bind"
    FILTER = "filter"


class Candidates(StrEnum):
    """Nodes in the answer: all that fit, or the best alone, unless the pod prefers some itself."""

    ALL = "all"
    BEST = "best"


@dataclass(frozen=True, slots=True)
class Filtered:
    """Nodes that fit, in the order of the question; why others do not.

    `unresolvable` are those that evicting pods would not help.
    """

    fitting: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """A pod that its scheduler has given to a node."""

    namespace: str
    name: str
    uid: str
    node: str


class NotSyncedError(Exception):
    """Not everything was seen yet, or what was seen is too old: no answer is possible now."""


class Extender(Protocol):
    """Answers a scheduler. Pods are as the API has them (`metadata`, `spec`)."""

    @property
    def synced(self) -> bool:
        """Whether questions can be answered."""

    @property
    def silence(self) -> str | None:
        """Why questions cannot be answered, in a sentence; None where they can."""

    async def turn(self) -> None:
        """Wait a moment while many binds are under way."""

    def filter(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        """Which nodes fit. A look-up: no I/O. Raises NotSyncedError."""

    def choose(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        """Which nodes fit; where the rules say so, the best alone, without the reasons for others."""

    def prioritize(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Sequence[int]:
        """How good each node is, 0 to 10. A look-up: no I/O, no side effects. Raises NotSyncedError."""

    def allocate(self, pod: Mapping[str, Any], node: str, *, pipelined: bool = False) -> str | None:
        """A scheduler that binds by itself has given a pod to a node, and may still take it back. Why it may not go
        there, or None: then it counts there, and only there, from now on. No I/O. Raises NotSyncedError.

        `pipelined`: it is to wait there for what others leave, and will be asked about anew: so it does not count."""

    def deallocate(self, pod: Mapping[str, Any], *, waits: bool) -> None:
        """It has taken that back. `waits`: the pod is on no node and nobody has asked to bind it; else it counts till
        it is seen to be gone. No I/O."""

    async def bind(self, binding: Binding) -> None:
        """Decide on cards, write the decision and bind. Raises NotSyncedError and BindRefusedError."""
