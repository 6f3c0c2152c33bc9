"""Rows of a trace, as files have them; apart from `traces`, so that the command line reads them without the planner."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

REQUIRED = ("submitted_at", "duration_s", "gpus")
_SECONDS = "a number of seconds, at least 0"
_WHOLE = "a whole number"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A job of a trace. `ran` is how long it ran by itself, `asked` for how long it asked (None: unknown)."""

    submitted_at: datetime
    ran: timedelta
    gpus: int
    asked: timedelta | None = None
    user: str = ""
    project: str | None = None
    gpu_type: str | None = None
    priority: int = 0


def read_row(number: int, row: Mapping[str, str | None]) -> TraceRow:
    """A row of a table with at least the columns REQUIRED; `asked_s`, `user`, `project`, `gpu_type`, `priority` may be.

    `submitted_at` is a time with its zone, or UTC. Raises ValueError that names the row and the column.
    """
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        raise ValueError(f"Row {number} has no column {missing[0]}. A trace needs {', '.join(REQUIRED)}.")
    submitted_at = _read(number, row, "submitted_at", datetime.fromisoformat, "a time such as 2030-01-31T09:00:00Z")
    ran = _read(number, row, "duration_s", _seconds, _SECONDS)
    gpus = _read(number, row, "gpus", int, _WHOLE)
    asked = _read(number, row, "asked_s", _seconds, _SECONDS) if row.get("asked_s") else None
    if gpus < 1:
        raise ValueError(f"Row {number}: gpus must be at least 1.")
    return TraceRow(
        submitted_at if submitted_at.tzinfo else submitted_at.replace(tzinfo=UTC),
        ran,
        gpus,
        asked or None,
        row.get("user") or "",
        row.get("project") or None,
        row.get("gpu_type") or None,
        _read(number, row, "priority", int, _WHOLE) if row.get("priority") else 0,
    )


def _read(number: int, row: Mapping[str, str | None], column: str, read: Callable[[str], T], kind: str) -> T:
    try:
        return read(row[column] or "")
    except (ValueError, OverflowError) as error:
        raise ValueError(f"Row {number}: {column} must be {kind}.") from error


def _seconds(text: str) -> timedelta:
    length = timedelta(seconds=float(text))
    if length < timedelta(0):
        raise ValueError
    return length
