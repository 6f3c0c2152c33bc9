"""Rows of a trace, as files have them; apart from `traces`, so that the command line reads them without the planner."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

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


def read_row(number: int, row: Mapping[str, str | None]) -> TraceRow:
    """A row of a table with at least the columns REQUIRED; `asked_s`, `user`, `project`, `gpu_type`, `priority` may be.

    `submitted_at` is a time with its zone, or UTC. Raises ValueError that names the row.
    """
    try:
        submitted_at = datetime.fromisoformat(row["submitted_at"] or "")
        asked = float(row.get("asked_s") or 0)
        answer = TraceRow(
            submitted_at if submitted_at.tzinfo else submitted_at.replace(tzinfo=UTC),
            timedelta(seconds=float(row["duration_s"] or "")),
            int(row["gpus"] or ""),
            timedelta(seconds=asked) if asked else None,
            row.get("user") or "",
            row.get("project") or None,
            row.get("gpu_type") or None,
            int(row.get("priority") or 0),
        )
    except KeyError as error:
        raise ValueError(f"Row {number} of the trace has no column {error}; it needs {', '.join(REQUIRED)}.") from error
    except (ValueError, OverflowError) as error:
        raise ValueError(f"Row {number} of the trace can't be read: {error}.") from error
    if answer.gpus < 1 or answer.ran < timedelta(0):
        raise ValueError(f"Row {number} of the trace: `gpus` must be at least 1, and `duration_s` at least 0.")
    return answer
