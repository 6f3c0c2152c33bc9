"""What the API server asks before it takes a pod, and what can be answered: nothing to say, no, or yes with changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reservation_core.domain.pods.pod_changes import PatchOperation


class Operation(StrEnum):
    """The operation about to be done to the pod."""

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

    `subresource` is empty for the pod itself. `dry_run`: nothing will be kept.
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
    """Nothing against it, nothing to change. Warnings are shown to whoever asks."""

    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Denied:
    """The pod must not be; the reason says what to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class Patched:
    """The pod may be with these changes, which make it `pod`. `log`: sentences for the log, one for each thing done."""

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
    """An object of the API's, empty where there is none or something else."""
    if isinstance(value, dict) or value is None:  # as all that was decoded: asked first, as that is faster told
        return value or {}
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """A list of the API's, empty where there is none or something else."""
    return value if isinstance(value, list) else ()


def _texts(pod: Mapping[str, Any] | None, of: str) -> Mapping[str, str]:
    found = members(members(members(pod).get("metadata")).get(of))
    return {name: value for name, value in found.items() if isinstance(value, str)}
