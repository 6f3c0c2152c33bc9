"""Tables of jobs, GPUs, nodes, events, tokens and users."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpu_dev.display.amounts import free_words, kept_words, resource_words
from gpu_dev.display.expected_starts import expected_start, nine_in_ten, start_words
from gpu_dev.display.local_times import local_sentence, local_time
from gpu_dev.display.output import Column, View, amount, as_data, as_json, memory
from gpu_dev.inputs.durations import format_duration
from reservation_core.domain.jobs.asked_dependencies import DependencyState, written_dependency
from reservation_core.domain.statuses import JobStatus, TokenScope

if TYPE_CHECKING:
    # For annotations alone: a command loads the contracts of what it shows.
    from gpu_dev.display.gpu_types import TypeSummary
    from gpu_dev.wire.audit_log import JobEvent
    from gpu_dev.wire.base import JobArray, RetriesOut
    from gpu_dev.wire.dead_letters import DeadLetterOut
    from gpu_dev.wire.jobs import AllocationOut, Job, QueueEntry
    from gpu_dev.wire.nodes import GpuOut, Holder, NodeOut, UnknownPodOut
    from gpu_dev.wire.people import TokenBudgetOut, TokenOut, UserOut
    from gpu_dev.wire.sessions import JobTerminal


def wanted_gpus(gpus: int, gpu_type: str | None, nodes: int) -> str:
    """A request in words: `2 h100`, `4 x 8 h100` (nodes x GPUs), `1 any`, `0`."""
    if gpus == 0:
        return "0"
    cards = f"{gpus} {gpu_type or 'any'}"
    return cards if nodes == 1 else f"{nodes} x {cards}"


def wanted_in_words(gpus: int, gpu_type: str | None, nodes: int = 1) -> str:
    """The same in a sentence: `2 h100 GPUs`, `8 h100 GPUs on each of 4 nodes`, `1 GPU of any type`, `CPUs alone`."""
    if gpus == 0:
        return "CPUs alone"
    named = f"{f'{gpu_type} ' if gpu_type else ''}GPU{'' if gpus == 1 else 's'}{'' if gpu_type else ' of any type'}"
    return f"{gpus} {named}" + ("" if nodes == 1 else f" on each of {nodes} nodes")


def placed(allocations: "Iterable[AllocationOut]", *, typed: bool = False) -> str:
    """The GPUs of a job, as `n1:0,1 n2:4`, or `typed` as `n1:0,1 (h100)`; without GPUs the node alone."""
    places = ((f"{one.node}:{','.join(map(str, one.gpu_indices))}".rstrip(":"), one.gpu_type) for one in allocations)
    return " ".join(f"{place} ({gpu_type})" if typed and gpu_type else place for place, gpu_type in places)


def holder_words(holder: "Holder | None") -> str:
    if holder is None:
        return ""
    if holder.id is None:
        return "yours" if holder.yours else "another user"
    return f"{holder.id} ({holder.user})"


def _until(job: "Job") -> datetime | None:
    """The next time of a job: the estimated start while it waits, else its end."""
    if job.status is JobStatus.QUEUED:
        return expected_start(job)
    return job.finished_at or job.ends_at


def _as_text(data: Any) -> str:
    """Data in one line of JSON."""
    return as_json(as_data(data)).rstrip()


def needed_jobs(job: "Job", states: Collection[DependencyState] = tuple(DependencyState)) -> list[str]:
    """The jobs that a job waits for, or has waited for, each as `--after` takes it and with its status."""
    needed = (one for one in job.after if one.state in states)
    return [f"{written_dependency(one.job, one.when)} ({one.status.value})" for one in needed]


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _retries(retries: "RetriesOut | None") -> str:
    return "" if retries is None else f"{retries.done} of {retries.max} (on {', '.join(retries.on)})"


def status_words(job: "Job") -> str:
    """A job's status; of an array with how many of its elements are over."""
    if job.array is None:
        return job.status.value
    ended = job.array.succeeded + job.array.failed + job.array.cancelled + job.array.expired
    return f"{job.status.value}, {ended} of {job.array.size} ended"


def _array(array: "JobArray | None") -> str:
    if array is None:
        return ""
    counts = ("queued", "running", "succeeded", "failed", "cancelled", "expired")
    found = [f"{number} {word}" for word in counts if (number := getattr(array, word))]
    most = "" if array.parallel is None else f"; at most {array.parallel} at once"
    return f"{', '.join(found)} of {array.size}{most}"


JOB: "View[Job]" = View(
    name=lambda job: job.id,
    columns=(
        Column("ID", lambda job: job.id),
        Column("NAME", lambda job: job.name or ""),
        Column("USER", lambda job: job.user),
        Column("STATUS", status_words),
        Column("GPUS", lambda job: wanted_gpus(job.gpus, job.gpu_type, job.nodes)),
        Column("FOR", lambda job: format_duration(job.duration)),
        Column("PLACE", lambda job: _number(job.queue_position), right=True),
        Column("STARTS/ENDS", lambda job: local_time(_until(job))),
        Column("WHERE", lambda job: placed(job.allocations), wide=True),
        Column("REASON", lambda job: job.reason.code.value, wide=True),
        Column("EXIT", lambda job: _number(job.exit_code), wide=True, right=True),
        Column("PRIORITY", lambda job: str(job.priority), wide=True, right=True),
        Column("PROJECT", lambda job: job.project or "", wide=True),
        Column("CREATED", lambda job: local_time(job.created_at), wide=True),
    ),
    empty="No jobs wait or run. Start one: gpu-dev run --gpus 1 --for 1h -- python train.py (all: gpu-dev list --all)",
)

TERMINAL: "View[JobTerminal]" = View(
    name=lambda terminal: terminal.name,
    columns=(
        Column("TERMINAL", lambda terminal: terminal.name, right=True),
        Column("USER", lambda terminal: terminal.user),
        Column("SINCE", lambda terminal: local_time(terminal.opened_at)),
        Column("PROGRAM", lambda terminal: terminal.program),
    ),
    empty="No terminal is open in the job. Open one: gpu-dev shell ID",
)


def idle_words(job: "Job") -> str:
    """`since 14:05; its GPUs go to others at 14:35 if they still are`; empty without a warning."""
    if job.idle is None:
        return ""
    since = f"since {local_time(job.idle.since)}"
    release_at = job.idle.release_at
    return (
        since if release_at is None else f"{since}; its GPUs go to others at {local_time(release_at)} if they still are"
    )


def preemption_words(job: "Job") -> str:
    """`keeps its GPUs for 30m; gave them back 2 times`; empty unless the job is preemptible."""
    terms = job.preemption
    if terms is None:
        return ""
    kept = f"keeps its GPUs for {format_duration(terms.min_runtime)}" if terms.min_runtime else "yes"
    times = "" if not terms.done else f"; gave them back {'once' if terms.done == 1 else f'{terms.done} times'}"
    return kept + times + ("" if terms.asked_at is None else f"; asked for them at {local_time(terms.asked_at)}")


def _signal(job: "Job") -> str:
    signal = job.end_signal
    return "" if signal is None else f"{signal.signal.value} {format_duration(signal.before)} before its end"


JOB_DETAILS: "View[Job]" = View(
    name=lambda job: job.id,
    columns=(
        Column("ID", lambda job: job.id),
        Column("NAME", lambda job: job.name or ""),
        Column("USER", lambda job: job.user),
        Column("PROJECT", lambda job: job.project or ""),
        Column("STATUS", lambda job: job.status.value),
        Column("REASON", lambda job: f"{job.reason.code.value}: {local_sentence(job.reason.detail)}"),
        Column("ELEMENTS", lambda job: _array(job.array)),
        Column("GPUS", lambda job: wanted_gpus(job.gpus, job.gpu_type, job.nodes)),
        Column("FOR", lambda job: format_duration(job.duration)),
        Column("PRIORITY", lambda job: str(job.priority)),
        Column("PLACE", lambda job: _number(job.queue_position)),
        Column("AFTER", lambda job: ", ".join(needed_jobs(job))),
        Column("STARTS ABOUT", start_words),
        Column("PROMISED START", lambda job: local_time(job.promised_start_at)),
        Column("CREATED", lambda job: local_time(job.created_at)),
        Column("STARTED", lambda job: local_time(job.started_at)),
        Column("ENDS BY", lambda job: local_time(job.ends_at)),
        Column("IDLE", idle_words),
        Column("FINISHED", lambda job: local_time(job.finished_at)),
        Column("EXIT CODE", lambda job: _number(job.exit_code)),
        Column("ATTEMPT", lambda job: _number(job.attempt or None)),
        Column("RETRIES", lambda job: _retries(job.retries)),
        Column("PREEMPTIBLE", preemption_words),
        Column("SIGNAL", _signal),
        Column("RESOURCES", lambda job: resource_words(job.resources)),
        Column("WHERE", lambda job: placed(job.allocations, typed=job.gpu_type is None)),
        Column("PODS", lambda job: " ".join(one.pod for one in job.allocations)),
        Column("SHARED WITH", lambda job: ", ".join(job.shared_with or ())),
    ),
)

_FREE_BESIDE: "tuple[Column[Any], ...]" = (
    Column("CPUS FREE", lambda one: free_words(one.cpus_free, one.cpus), wide=True, right=True),
    Column(
        "MEMORY FREE", lambda one: free_words(one.memory_bytes_free, one.memory_bytes, memory), wide=True, right=True
    ),
)


def _next_free(kind: "TypeSummary") -> str:
    if kind.free_until is not None:
        return f"now, until {local_time(kind.free_until)}"
    return "now" if kind.free else local_time(kind.next_free_at) or "not known"


GPU_TYPE: "View[TypeSummary]" = View(
    name=lambda kind: kind.gpu_type,
    columns=(
        Column("TYPE", lambda kind: kind.gpu_type),
        Column("TOTAL", lambda kind: str(kind.total), right=True),
        Column("FREE", lambda kind: str(kind.free - kind.taken_soon), right=True),
        Column("TAKEN SOON", lambda kind: str(kind.taken_soon), right=True),
        Column("HELD", lambda kind: str(kind.held), right=True),
        Column("UNUSABLE", lambda kind: str(kind.unusable), right=True),
        Column("FREE ON ONE NODE", lambda kind: str(kind.most_free_on_one_node), wide=True, right=True),
        *_FREE_BESIDE,
        Column("NEXT FREE", _next_free),
    ),
    empty="The cluster has reported no such GPUs yet. See: gpu-dev nodes",
)

GPU: "View[GpuOut]" = View(
    name=lambda card: f"{card.node}:{card.index}",
    columns=(
        Column("NODE", lambda card: card.node),
        Column("GPU", lambda card: str(card.index), right=True),
        Column("TYPE", lambda card: card.gpu_type),
        Column("STATE", lambda c: f"free until {local_time(c.taken_at)}" if c.taken_at else c.state.value),
        Column("HOLDER", lambda card: holder_words(card.holder)),
        Column("FREE AT", lambda card: local_time(card.free_at)),
        Column("MEMORY", lambda card: memory(card.memory_bytes), wide=True, right=True),
        Column(
            "HEALTH",
            lambda card: "; ".join(
                f"{word} since {local_time(since)}: {local_sentence(why or '')}"
                for word, since, why in (
                    ("quarantined", card.quarantined_at, card.quarantine_reason),
                    ("slow", card.slow_since, card.slow_reason),
                )
                if since is not None
            ),
            wide=True,
        ),
        Column("UUID", lambda card: card.uuid or "", wide=True),
    ),
    empty=GPU_TYPE.empty,
)


def takes_new(node: "NodeOut") -> bool:
    """Whether new jobs start on the node. Kubernetes calls a silent node schedulable, too."""
    return node.ready and node.schedulable and node.fenced_at is None and node.cordoned_at is None


NODE: "View[NodeOut]" = View(
    name=lambda node: node.name,
    columns=(
        Column("NODE", lambda node: node.name),
        Column("READY", lambda node: "yes" if node.ready else "no"),
        Column("SCHEDULABLE", lambda node: "yes" if takes_new(node) else "no"),
        Column("TYPES", lambda node: ",".join(node.gpu_types)),
        Column("GPUS", lambda node: str(node.gpus), right=True),
        Column("FREE", lambda node: str(node.free - node.taken_soon), right=True),
        Column("TAKEN SOON", lambda node: str(node.taken_soon), right=True),
        Column("DETAIL", lambda node: local_sentence(node.detail or "")),
        Column("NAMED", lambda node: node.logical_name or "", wide=True),
        Column("ZONE", lambda node: node.zone or "", wide=True),
        Column("TAINTS", lambda node: ",".join(node.taints), wide=True),
        Column(
            "FENCED",
            lambda node: f"{local_time(node.fenced_at)} by {node.fenced_by}" if node.fenced_at else "",
            wide=True,
        ),
        Column(
            "CORDONED",
            lambda node: f"{local_time(node.cordoned_at)} by {node.cordoned_by}" if node.cordoned_at else "",
            wide=True,
        ),
        *_FREE_BESIDE,
        Column("FOR CPU JOBS", lambda node: kept_words(node.cpu_jobs), wide=True, right=True),
        Column("LAST SEEN", lambda node: local_time(node.last_seen_at), wide=True),
        Column("LABELS", lambda node: ",".join(f"{k}={v}" for k, v in sorted(node.labels.items())), wide=True),
    ),
    empty="The cluster has reported no nodes yet.",
)

UNKNOWN_POD: "View[UnknownPodOut]" = View(
    name=lambda pod: pod.name,
    columns=(
        Column("POD", lambda pod: pod.name),
        Column("NODE", lambda pod: pod.node or ""),
        Column("GPUS", lambda pod: ",".join(map(str, pod.gpu_indices or ()))),
        Column("SINCE", lambda pod: local_time(pod.first_seen_at)),
        Column("ENDED BY", lambda pod: pod.end_requested_by or ""),
        Column("WHY", lambda pod: local_sentence(pod.detail)),
    ),
    empty="No unknown pods: every pod belongs to a job.",
)

QUEUE: "View[QueueEntry]" = View(
    name=lambda entry: entry.id,
    columns=(
        Column("PLACE", lambda entry: _number(entry.queue_position), right=True),
        Column("ID", lambda entry: entry.id),
        Column("NAME", lambda entry: entry.name or ""),
        Column("USER", lambda entry: entry.user),
        Column("GPUS", lambda entry: wanted_gpus(entry.gpus, entry.gpu_type, entry.nodes)),
        Column("FOR", lambda entry: format_duration(entry.duration)),
        Column("WHY", lambda entry: entry.reason.code.value),
        Column("STARTS ABOUT", lambda entry: local_time(expected_start(entry))),
        Column("NINE IN TEN BY", nine_in_ten, wide=True),
        Column("PROMISED START", lambda entry: local_time(entry.promised_start_at), wide=True),
        Column("PRIORITY", lambda entry: str(entry.priority), wide=True, right=True),
        Column("PROJECT", lambda entry: entry.project or "", wide=True),
        Column("WAITING SINCE", lambda entry: local_time(entry.created_at), wide=True),
        Column("DETAIL", lambda entry: local_sentence(entry.reason.detail), wide=True),
    ),
    empty="No job of yours waits.",
)

DEAD_LETTER: "View[DeadLetterOut]" = View(
    name=lambda letter: f"{letter.queue}/{letter.id}",
    columns=(
        Column("MESSAGE", lambda letter: f"{letter.queue}/{letter.id}"),
        Column("READS", lambda letter: str(letter.read_count), right=True),
        Column("ENQUEUED", lambda letter: local_time(letter.enqueued_at)),
        Column("ERROR", lambda letter: letter.error),
        Column("BODY", lambda letter: _as_text(letter.body), wide=True),
    ),
    empty="No dead letters: every message could be handled.",
)


def _scopes(scopes: Sequence[TokenScope]) -> str:
    return "everything" if len(scopes) == len(TokenScope) else " ".join(scopes)


def _budget(budget: "TokenBudgetOut | None") -> str:
    """The used and total GPU-hours of a budget, and its end."""
    if budget is None:
        return ""
    until = "" if budget.until is None else f" until {local_time(budget.until)}"
    over = ", over" if budget.used_gpu_hours > budget.gpu_hours else ""
    return f"{amount(budget.used_gpu_hours)} of {amount(budget.gpu_hours)} GPU-hours{until}{over}"


TOKEN: "View[TokenOut]" = View(
    name=lambda token: token.id,
    columns=(
        Column("ID", lambda token: token.id),
        Column("NAME", lambda token: token.name or ""),
        Column("USER", lambda token: token.user),
        Column("GOOD FOR", lambda token: _scopes(token.scopes)),
        Column("BUDGET", lambda token: _budget(token.budget)),
        Column("CREATED", lambda token: local_time(token.created_at)),
        Column("EXPIRES", lambda token: local_time(token.expires_at) or "never"),
        Column("LAST USED", lambda token: local_time(token.last_used_at) or "never"),
        Column("REVOKED", lambda token: local_time(token.revoked_at)),
    ),
    empty="No tokens.",
)

USER: "View[UserOut]" = View(
    name=lambda user: user.name,
    columns=(
        Column("NAME", lambda user: user.name),
        Column("ROLE", lambda user: user.role.value),
        Column("CREATED", lambda user: local_time(user.created_at)),
        Column("DISABLED", lambda user: local_time(user.disabled_at)),
    ),
    empty="No users.",
)


def _kind_words(kind: str) -> str:
    from reservation_core.domain.history.event_words import kind_words

    return kind_words(kind)


EVENT: "View[JobEvent]" = View(
    name=lambda event: str(event.id),
    columns=(
        Column("EVENT", lambda event: str(event.id), right=True),
        Column("AT", lambda event: local_time(event.at)),
        Column("WHAT", lambda event: _kind_words(event.kind)),
        Column("BY", lambda event: event.actor),
        Column("BEFORE", lambda event: event.before or ""),
        Column("AFTER", lambda event: event.after or ""),
        Column("REASON", lambda one: local_sentence(one.reason.detail if one.reason else one.data.get("because", ""))),
        Column("DATA", lambda event: _as_text(event.data) if event.data else "", wide=True),
    ),
    empty="No events yet.",
)
