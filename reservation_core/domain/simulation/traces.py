"""Traces of jobs as rows, and the jobs and clusters that a replay makes of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.model import Gpu, Node
from reservation_core.domain.plan import Waiting
from reservation_core.domain.simulation.replay import TraceJob

ANY = "gpu"
"""The type of GPUs where a trace names none."""

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


def jobs_of(rows: Iterable[TraceRow], node_size: int, asked: Callable[[TraceRow], timedelta]) -> list[TraceJob]:
    """The jobs of a trace in the order of submission, on nodes of so many GPUs.

    More GPUs than a node has are spread evenly over as few nodes as can be. `asked` says for how long a job asks whose
    row doesn't; it never is shorter than the job ran.
    """
    users: dict[str, int] = {}
    answer: list[TraceJob] = []
    for seq, row in enumerate(sorted(rows, key=lambda row: row.submitted_at), start=1):
        nodes = -(-row.gpus // node_size)
        job = Waiting(
            f"job-{seq}",
            -(-row.gpus // nodes),
            nodes,
            row.gpu_type,
            max(row.asked or asked(row), row.ran, timedelta(seconds=1)),
            row.priority,
            seq,
            owner=users.setdefault(row.user, len(users) + 1),
            project=row.project,
            submitted_at=to_micros(row.submitted_at),
        )
        answer.append(TraceJob(job, row.submitted_at, row.ran))
    return answer


def cluster(gpus: int, node_size: int, gpu_type: str = ANY) -> list[Node]:
    """Nodes of so many GPUs each, the last of which may have fewer."""
    sizes = [min(node_size, gpus - first) for first in range(0, gpus, node_size)]
    return [_node(number, size, node_size * number, gpu_type) for number, size in enumerate(sizes)]


def _node(number: int, size: int, first_id: int, gpu_type: str) -> Node:
    name = f"node-{number:04}"
    return Node(name, tuple(Gpu(first_id + index, name, index, gpu_type) for index in range(size)))


def lasted(jobs: Sequence[TraceJob], ends: Iterable[datetime]) -> timedelta:
    """From the first submission to the last end."""
    return max(ends) - min(job.submitted_at for job in jobs)
