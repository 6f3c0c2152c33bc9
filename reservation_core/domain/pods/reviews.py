"""Admission reviews of pods: the API server's question, and the possible answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reservation_core.domain.pods.pod_changes import PatchOperation


class Operation(StrEnum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


@dataclass(frozen=True, slots=True)
class Requester:
    """The requester, as the API server has authenticated it."""

    username: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodReview:
    """One question. Pods are plain JSON; `pod` is None for deletions, `old_pod` for creations.

    `subresource` is empty for the pod itself. `dry_run`: nothing will be stored.
    """

    operation: Operation
    pod: Mapping[str, Any] | None
    old_pod: Mapping[str, Any] | None = None
    subresource: str = ""
    namespace: str = ""
    requester: Requester = field(default_factory=Requester)
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Untouched:
    """The pod is allowed unchanged. Warnings are shown to the requester."""

    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Denied:
    """The pod is refused; the reason says what to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class Patched:
    """The pod is allowed with changes, which make it `pod`. `log`: one sentence per change."""

    pod: Mapping[str, Any]
    operations: Sequence[PatchOperation]
    log: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


Verdict = Untouched | Denied | Patched


def annotations_of(pod: Mapping[str, Any] | None) -> Mapping[str, str]:
    """A pod's annotations, empty where it has none."""
    return _texts(pod, "annotations")


def labels_of(pod: Mapping[str, Any] | None) -> Mapping[str, str]:
    """A pod's labels, empty where it has none."""
    return _texts(pod, "labels")


def members(value: object) -> Mapping[str, Any]:
    """An object of the API, empty if missing or of another type."""
    if isinstance(value, dict) or value is None:  # the usual case, and faster to check
        return value or {}
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """A list of the API, empty if missing or of another type."""
    return value if isinstance(value, list) else ()


def _texts(pod: Mapping[str, Any] | None, field: str) -> Mapping[str, str]:
    texts = members(members(members(pod).get("metadata")).get(field))
    return {name: value for name, value in texts.items() if isinstance(value, str)}
