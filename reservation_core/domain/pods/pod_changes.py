"""Changes to a pod, as JSON patch operations (RFC 6902) that apply to it one after the other.

The pod is plain JSON as the API server sends it: members may be missing or null. Entries that exist already need no
operation, so that changing twice is changing once. The pod that was given is never touched.
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
        """As RFC 6902 writes it."""
        said: dict[str, Any] = {"op": self.op, "path": pointer(self.path)}
        if self.op != "remove":
            said["value"] = self.value
        return said


def pointer(path: Path) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


class PodChanges:
    """A pod and what has been done to it so far."""

    def __init__(self, pod: Mapping[str, Any]) -> None:
        self._pod = pod
        self._operations: list[PatchOperation] = []

    @property
    def pod(self) -> Mapping[str, Any]:
        """The pod as the operations make it."""
        return self._pod

    @property
    def operations(self) -> tuple[PatchOperation, ...]:
        """What was done, in order."""
        return tuple(self._operations)

    def add(self, path: Path, value: object) -> None:
        """Set a member, or put an item before the one at an index (at the end: the list's length)."""
        self._do(PatchOperation("add", path, value))

    def replace(self, path: Path, value: object) -> None:
        """Another value for a member or an item that is there."""
        self._do(PatchOperation("replace", path, value))

    def remove(self, path: Path) -> None:
        """Take away a member or an item that is there."""
        self._do(PatchOperation("remove", path))

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Set annotations; nothing is done for those that the pod has so."""
        has = _annotations(self._pod)
        wanted = {name: value for name, value in annotations.items() if has.get(name) != value}
        if not wanted:
            return
        if not isinstance(self._pod.get("metadata"), Mapping):
            self.add(("metadata",), {"annotations": wanted})
        elif not has:  # missing, null or empty
            self.add(("metadata", "annotations"), wanted)
        else:
            for name, value in wanted.items():
                self.add(("metadata", "annotations", name), value)

    def remove_annotations(self, names: Sequence[str]) -> tuple[str, ...]:
        """Take annotations away; returns those that were there."""
        there = tuple(name for name in names if name in _annotations(self._pod))
        for name in there:
            self.remove(("metadata", "annotations", name))
        return there

    def _do(self, operation: PatchOperation) -> None:
        self._pod = _changed(self._pod, operation.path, operation)
        self._operations.append(operation)


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = pod.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _changed(node: Any, path: Path, operation: PatchOperation) -> Any:
    """A copy of `node` with the operation done below it; what lies beside the path is shared, not copied."""
    step = path[0]
    if isinstance(step, int):
        items = list(node)
        if len(path) > 1:
            items[step] = _changed(items[step], path[1:], operation)
        elif operation.op == "add":
            items.insert(step, operation.value)
        elif operation.op == "replace":
            items[step] = operation.value
        else:
            del items[step]
        return items
    members = dict(node)
    if len(path) > 1:
        members[step] = _changed(members[step], path[1:], operation)
    elif operation.op == "remove":
        del members[step]
    else:
        members[step] = operation.value
    return members
