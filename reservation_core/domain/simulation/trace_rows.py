"""Rows of a trace, as files have them; apart from `traces`, so that the command line reads them without the planner."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T")

_SHOWN = 40
"""So many characters of a cell are shown where it can't be read."""

REQUIRED = ("submitted_at", "duration_s", "gpus")


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


def read_row(line: int, row: Mapping[str, str | None]) -> TraceRow:
    """A row of a table with at least the columns REQUIRED; `asked_s`, `user`, `project`, `gpu_type`, `priority` may be.

    `submitted_at` is a time with its zone, or UTC. Raises ValueError that names the line, the column, and what is
    expected there.
    """
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        raise ValueError(f"The first line has no column {missing[0]}; it needs {', '.join(REQUIRED)}.")
    cells = _Cells(line, row)
    return TraceRow(
        cells.read("submitted_at", _moment, "a time, such as 2026-11-26T14:00:00Z"),
        cells.read("duration_s", _seconds, "a number of seconds, 0 or more, such as 3600"),
        cells.read("gpus", _at_least_one, "a whole number, 1 or more"),
        cells.read("asked_s", _asked, "a number of seconds, such as 7200, or empty") if cells.text("asked_s") else None,
        row.get("user") or "",
        row.get("project") or None,
        row.get("gpu_type") or None,
        cells.read("priority", int, "a whole number, such as 0, or empty") if cells.text("priority") else 0,
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of a row; `line` is its line in the file."""

    line: int
    row: Mapping[str, str | None]

    def text(self, name: str) -> str:
        return (self.row.get(name) or "").strip()

    def read(self, name: str, kind: Callable[[str], T], expected: str) -> T:
        """The value of a cell. Raises ValueError that says what is expected."""
        text = self.text(name)
        try:
            return kind(text)
        except (ValueError, OverflowError) as error:
            found = f"{text[:_SHOWN]!r} is not" if text else "nothing is given where there must be"
            raise ValueError(f"Line {self.line}, column {name}: {found} {expected}.") from error


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _seconds(text: str) -> timedelta:
    length = timedelta(seconds=float(text))
    if length < timedelta(0):
        raise ValueError(text)
    return length


def _asked(text: str) -> timedelta | None:
    return _seconds(text) or None


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
