"""Objects, lists and times in the API's JSON; values of another type count as empty or None."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec


class _Metadata(TypedDict, total=False):
    """All that is read of it; `managedFields`, half of a pod's text, is skipped."""

    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    generation: Any
    generateName: Any
    labels: Any
    annotations: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    finalizers: Any
    ownerReferences: Any


class _Object(TypedDict, total=False):
    """An object in a list or watch, or a Status."""

    apiVersion: Any
    kind: Any
    metadata: _Metadata
    spec: Any
    status: Any
    data: Any
    code: Any
    reason: Any
    message: Any
    details: Any


class _List(TypedDict, total=False):
    metadata: Any
    items: list[_Object]


class _Event(TypedDict, total=False):
    type: Any
    object: _Object


ANYTHING = msgspec.json.Decoder[Any]()
OBJECT = msgspec.json.Decoder[Any](_Object)
LIST = msgspec.json.Decoder[Any](_List)
EVENT = msgspec.json.Decoder[Any](_Event)
"""Of a watch."""


def decoded(text: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode JSON; where it differs from the decoder's types, all of it is kept.

    Raises ValueError or RecursionError for anything but JSON.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        return ANYTHING.decode(text)


def format_time(at: datetime) -> str:
    """Format a time for an annotation: RFC 3339, UTC, microseconds."""
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return f"{utc.isoformat(timespec='microseconds')[:-6]}Z"


def read_time(text: object) -> datetime | None:
    """Parse a time of the API or of an annotation, in UTC; None for anything but a time with an offset."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
        return None if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    if isinstance(value, dict) or value is None:  # the common case, and faster than Mapping
        return value or {}
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []
