"""The jobs and clusters that a replay makes of a trace's rows."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from reservation_core.domain.calendar import to_micros
from reservation_core.domain.model import Gpu, Node
from reservation_core.domain.plan import Waiting
from reservation_core.domain.simulation.replay import TraceJob
from reservation_core.domain.simulation.trace_rows import TraceRow

ANY = "gpu"
"""The type of GPUs where a trace names none."""


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
