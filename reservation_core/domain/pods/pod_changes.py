"""Changes to a pod, as JSON patch operations (RFC 6902) in the order of application.

The pod is plain JSON as the API server sends it: members may be missing or null. Entries that exist need no operation,
so that changes are idempotent. The original pod is never modified.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class PatchOperation:
    """One operation; `value` is None for `remove`."""

    op: Literal["add", "replace", "remove"]
    path: Path
    value: Any = None

    def as_json(self) -> dict[str, Any]:
        """The operation in the form of RFC 6902."""
        operation: dict[str, Any] = {"op": self.op, "path": pointer(self.path)}
        if self.op != "remove":
            operation["value"] = self.value
        return operation


def pointer(path: Path) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


class PodChanges:
    """A pod and the changes made to it so far."""

    def __init__(self, pod: Mapping[str, Any]) -> None:
        self._pod = pod
        self._operations: list[PatchOperation] = []

    @property
    def pod(self) -> Mapping[str, Any]:
        """The pod after the operations."""
        return self._pod

    @property
    def operations(self) -> tuple[PatchOperation, ...]:
        return tuple(self._operations)

    def add(self, path: Path, value: object) -> None:
        """Set a member, or insert an item before an index (the list's length appends)."""
        self._do(PatchOperation("add", path, value))

    def replace(self, path: Path, value: object) -> None:
        """Replace an existing member or item."""
        self._do(PatchOperation("replace", path, value))

    def remove(self, path: Path) -> None:
        """Remove an existing member or item."""
        self._do(PatchOperation("remove", path))

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Set annotations, except those that the pod has already."""
        present = _annotations(self._pod)
        wanted = {name: value for name, value in annotations.items() if present.get(name) != value}
        if not wanted:
            return
        if not isinstance(self._pod.get("metadata"), Mapping):
            self.add(("metadata",), {"annotations": wanted})
        elif not present:  # missing, null or empty
            self.add(("metadata", "annotations"), wanted)
        else:
            for name, value in wanted.items():
                self.add(("metadata", "annotations", name), value)

    def remove_annotations(self, names: Sequence[str]) -> tuple[str, ...]:
        """Remove annotations; returns those that existed."""
        present = tuple(name for name in names if name in _annotations(self._pod))
        for name in present:
            self.remove(("metadata", "annotations", name))
        return present

    def _do(self, operation: PatchOperation) -> None:
        self._pod = _apply(self._pod, operation.path, operation)
        self._operations.append(operation)


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = pod.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


def _apply(node: Any, path: Path, operation: PatchOperation) -> Any:
    """A copy of `node` with the operation applied; parts beside the path are shared, not copied."""
    step = path[0]
    if isinstance(step, int):
        items = list(node)
        if len(path) > 1:
            items[step] = _apply(items[step], path[1:], operation)
        elif operation.op == "add":
            items.insert(step, operation.value)
        elif operation.op == "replace":
            items[step] = operation.value
        else:
            del items[step]
        return items
    members = dict(node)
    if len(path) > 1:
        members[step] = _apply(members[step], path[1:], operation)
    elif operation.op == "remove":
        del members[step]
    else:
        members[step] = operation.value
    return members
