"""Objects as an API server keeps them: versions, what happened since a version, and deletion that waits.

Plain data, no HTTP: `emulator` puts it on the wire. Every change has a resource version from one counter, and the last
`HISTORY` changes of a resource can be replayed to a watch.
"""

import json
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

JsonObject = dict[str, Any]
Key = tuple[str | None, str]
HISTORY = 50_000
SNAPSHOTS = 32


_SERVER_S_OWN = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


class ApiError(Exception):
    """An answer other than success, as the API server words it."""

    def __init__(self, code: int, reason: str, message: str, details: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> JsonObject:
        """The body of the answer: a `Status`."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
            **({"details": self.details} if self.details else {}),
        }


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object and where it lives: `group` is empty for the core."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """As objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As error messages name it: `pods`, `resourceslices.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(slots=True)
class Change:
    """One change of one object: what it was and what it is (None before its creation and after its removal)."""

    version: int
    old: JsonObject | None
    new: JsonObject | None
    _encoded: dict[str, bytes] = field(default_factory=dict)

    def encoded(self, event: str) -> bytes:
        """The watch's line. For a removal the object is the last one, with the removal's version."""
        if event not in self._encoded:
            self._encoded[event] = json.dumps({"type": event, "object": self.new or self.old}).encode() + b"\n"
        return self._encoded[event]


class Store:
    """All objects of the emulated cluster. Belongs to one event loop; nothing here waits."""

    def __init__(self) -> None:
        self.version = 1
        self._objects: dict[Resource, dict[Key, JsonObject]] = defaultdict(dict)
        self._changes: dict[Resource, list[Change]] = defaultdict(list)
        self._forgotten_until = 0
        self._listeners: dict[Resource, set[Callable[[], None]]] = defaultdict(set)
        self._snapshots: dict[tuple[Resource, int], list[JsonObject]] = {}

    def objects(self, resource: Resource, namespace: str | None) -> Iterator[JsonObject]:
        """In the order of their keys, as etcd gives them."""
        objects = self._objects[resource]
        for key in sorted(objects, key=lambda key: (key[0] or "", key[1])):
            if namespace is None or key[0] == namespace:
                yield objects[key]

    def snapshot(self, resource: Resource) -> int:
        """Keep what there is now for the later pages of a list; answers its version."""
        if (resource, self.version) not in self._snapshots:
            self._snapshots[resource, self.version] = [*self.objects(resource, None)]
            for oldest in [*self._snapshots][:-SNAPSHOTS]:
                del self._snapshots[oldest]
        return self.version

    def objects_at(self, resource: Resource, version: int, namespace: str | None) -> Iterator[JsonObject]:
        """What a snapshot shows. Raises ApiError 410 when it is no longer kept."""
        if (resource, version) not in self._snapshots:
            message = "The provided continue parameter is too old to display a consistent list result."
            raise ApiError(410, "Expired", message)
        for snapshot in self._snapshots[resource, version]:
            if namespace is None or snapshot["metadata"].get("namespace") == namespace:
                yield snapshot

    def find(self, resource: Resource, namespace: str | None, name: str) -> JsonObject | None:
        """The object, not to be changed by the caller."""
        return self._objects[resource].get((namespace, name))

    def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """The object, not to be changed by the caller. Raises ApiError 404."""
        found = self.find(resource, namespace, name)
        if found is None:
            details = {"name": name, "group": resource.group, "kind": resource.plural}
            raise ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details)
        return found

    def create(self, resource: Resource, namespace: str | None, new: JsonObject) -> JsonObject:
        """Add an object. Raises ApiError 409 where there is one of that name."""
        metadata = new.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        name = metadata["name"]
        if (namespace, name) in self._objects[resource]:
            details = {"name": name, "group": resource.group, "kind": resource.plural}
            raise ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', details)
        if namespace is not None:
            metadata["namespace"] = namespace
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(key, None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": stamp(utc_now()), "generation": 1}
        return self._write(resource, (namespace, name), None, new)

    def replace(self, resource: Resource, old: JsonObject, new: JsonObject) -> JsonObject:
        """Put `new` in the place of `old`; what would change nothing changes nothing. Raises ApiError 409.

        An object that was waiting for its finalizers goes when the last is taken from it.
        """
        metadata, before = new["metadata"], old["metadata"]
        if before.get("deletionTimestamp") and {*metadata.get("finalizers", ())} - {*before.get("finalizers", ())}:
            why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
            raise ApiError(422, "Invalid", why)
        modified = "the object has been modified; please apply your changes to the latest version"
        for wanted, what in (("resourceVersion", modified), ("uid", "Precondition failed: UID")):
            if metadata.get(wanted) and metadata[wanted] != before[wanted]:
                raise self.conflict(resource, before["name"], what)
        for name in _SERVER_S_OWN:
            metadata.pop(name, None)
            if name in before:
                metadata[name] = before[name]
        if new.get("spec") != old.get("spec"):
            metadata["generation"] = before.get("generation", 1) + 1
        key = (before.get("namespace"), before["name"])
        released = before.get("finalizers") and not metadata.get("finalizers")
        if before.get("deletionTimestamp") and released and before.get("deletionGracePeriodSeconds", 0) == 0:
            return self._write(resource, key, new, None)
        return old if new == old else self._write(resource, key, old, new)

    def delete(self, resource: Resource, old: JsonObject, grace: int, *, graceful: bool = False) -> JsonObject:
        """Remove, or mark as being removed where `grace` or finalizers want it.

        `graceful` kinds (pods) are marked before they are removed, even where they go at once.
        """
        before = old["metadata"]
        key = (before.get("namespace"), before["name"])
        waits = bool(before.get("finalizers"))
        marked = bool(before.get("deletionTimestamp"))
        left = before.get("deletionGracePeriodSeconds", 0)
        if marked and (grace >= left > 0 or (waits and left == 0)):
            return old
        if (not marked and (graceful or waits)) or (marked and left > grace):
            old = self._mark(resource, key, old, grace)
        return old if grace > 0 or waits else self._write(resource, key, old, None)

    def _mark(self, resource: Resource, key: Key, old: JsonObject, grace: int) -> JsonObject:
        new = deepcopy(old)
        new["metadata"]["deletionTimestamp"] = stamp(utc_now() + timedelta(seconds=grace))
        new["metadata"]["deletionGracePeriodSeconds"] = grace
        new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return self._write(resource, key, old, new)

    @staticmethod
    def conflict(resource: Resource, name: str, why: str) -> ApiError:
        """409 for a precondition that does not hold."""
        details = {"name": name, "group": resource.group, "kind": resource.plural}
        message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
        return ApiError(409, "Conflict", message, details)

    def changes_after(self, resource: Resource, version: int) -> list[Change]:
        """What has happened since. Raises ApiError 410 when that is no longer known."""
        if version < self._forgotten_until:
            message = f"too old resource version: {version} ({self._forgotten_until})"
            raise ApiError(410, "Expired", message)
        changes = self._changes[resource]
        return changes[bisect_right(changes, version, key=lambda change: change.version) :]

    def forget_changes(self) -> None:
        """Compact: watches from any older version are refused from now on."""
        self.version += 1
        self._forgotten_until = self.version
        self._changes.clear()
        self._snapshots.clear()

    def listen(self, resource: Resource, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every change, until the returned function is called."""
        self._listeners[resource].add(listener)
        return lambda: self._listeners[resource].discard(listener)

    def _write(self, resource: Resource, key: Key, old: JsonObject | None, new: JsonObject | None) -> JsonObject:
        self.version += 1
        last = new if new is not None else deepcopy(old)
        assert last is not None
        last["metadata"]["resourceVersion"] = str(self.version)
        last |= {"kind": resource.kind, "apiVersion": resource.api_version}
        if new is None:
            self._objects[resource].pop(key, None)
        else:
            self._objects[resource][key] = new
        changes = self._changes[resource]
        changes.append(Change(self.version, last if new is None else old, new))
        if len(changes) > 2 * HISTORY:
            del changes[:HISTORY]
            self._forgotten_until = max(self._forgotten_until, changes[0].version)
        for listener in tuple(self._listeners[resource]):
            listener()
        return last


def utc_now() -> datetime:
    """The server's own clock."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """As the API writes times: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
