"""What a scheduler that calls us as its extender is answered from: look-ups in memory, and a binding."""

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
    """Which of the nodes that would do are told: all, or the best alone, unless the pod prefers some itself."""

    ALL = "all"
    BEST = "best"


@dataclass(frozen=True, slots=True)
class Filtered:
    """Which of the nodes would do, in the order they were asked in; why the others would not.

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
    """Not everything was seen yet, or what was seen is too old: nothing can be said now."""


class Extender(Protocol):
    """Answers a scheduler. Pods are as the API has them (`metadata`, `spec`)."""

    @property
    def synced(self) -> bool:
        """Whether questions can be answered."""

    @property
    def silence(self) -> str | None:
        """Why they can't be, in a sentence; None where they can."""

    async def turn(self) -> None:
        """Wait a moment while so much is under way that answers would only be late."""

    def filter(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        """Which nodes would do. A look-up: no I/O. Raises NotSyncedError."""

    def choose(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Filtered:
        """The same, where it is the rule with the best of them alone: then why others would not do is left out."""

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
