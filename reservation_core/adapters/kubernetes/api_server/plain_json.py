"""Objects, lists and times of the API's JSON, empty or None where there is something else."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def written_time(at: datetime) -> str:
    """A time as an annotation holds it: RFC 3339, UTC, to the microsecond."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def read_time(text: object) -> datetime | None:
    """A time of the API's or of an annotation's, in UTC; None for what is not a time with an offset."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
        return None if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def as_mapping(value: object) -> Mapping[str, Any]:
    """An object of the API's, empty where there is none or something else."""
    if isinstance(value, dict) or value is None:  # as all that was decoded: asked first, as that is faster told
        return value or {}
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """A list of the API's, empty where there is none or something else."""
    return value if isinstance(value, list) else []
