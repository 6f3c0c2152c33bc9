"""Jobs, nodes, events, tokens and users as bodies of REST: the only place that decides who sees which fields."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from api_service.access.sight import Sight
from api_service.presenting.preemption import accepted_preemption, end_signal, preemption
from reservation_core.contracts import dead_letters as contracts_dead_letters
from reservation_core.contracts import jobs as contracts_jobs
from reservation_core.contracts import nodes as contracts_nodes
from reservation_core.contracts import people as contracts_people
from reservation_core.contracts.audit_log import EventOut, JobEvent
from reservation_core.contracts.base import (
    ArrayTermsOut,
    IdleOut,
    JobArray,
    JobElement,
    JobRetries,
    ReasonOut,
    ResourcesOut,
    RetriesOut,
)
from reservation_core.contracts.job_files.secret_uses import JobSecretOut
from reservation_core.contracts.job_files.synced import JobSyncOut
from reservation_core.contracts.job_terms.dependencies import AskedDependency, JobDependencyOut
from reservation_core.contracts.job_terms.disks import JobDiskOut
from reservation_core.contracts.jobs import (
    JobSpec,
    WorkloadSpec,
)
from reservation_core.contracts.nodes import UnknownPodOut
from reservation_core.contracts.people import TokenBudgetOut, TokenOut
from reservation_core.domain.cards.link_words import link_words
from reservation_core.domain.jobs.dependencies import KnownDependency
from reservation_core.domain.model import NO_PREEMPTION, PodName, Reason, Reservation
from reservation_core.domain.people.token_budgets import MICROS_AN_HOUR, Budget
from reservation_core.domain.people.token_scopes import in_order
from reservation_core.domain.request_terms import MILLI, ArrayCounts, ArrayTerms, Retries, Share
from reservation_core.domain.short_durations import iso8601
from reservation_core.domain.statuses import JobStatus
from reservation_core.domain.time_words import rfc3339
from reservation_core.ports.history.audit import RecordedEvent
from reservation_core.ports.history.events import EventRecord
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.ports.nodes.inventory import GpuView, NodeView
from reservation_core.ports.people.identities import Principal, TokenRecord, UserRecord
from reservation_core.ports.queues import DeadLetter
from reservation_core.ports.traces import trace_id_of


def job(view: JobView) -> contracts_jobs.Job:
    """A job; its allocations are those of its newest attempt, one entry a pod."""
    row = view.reservation
    by_rank = groupby(sorted(view.allocations, key=lambda gpu: (gpu.rank, gpu.index)), key=lambda gpu: gpu.rank)
    allocations = []
    for rank, group in by_rank:
        gpus = list(group)
        allocations.append(
            contracts_jobs.AllocationOut(
                node=gpus[0].node,
                gpu_indices=[gpu.index for gpu in gpus if gpu.index >= 0],
                gpu_uuids=[gpu.uuid for gpu in gpus if gpu.index >= 0],
                pod=str(PodName(row.id, row.attempt, rank)),
                gpu_type=gpus[0].gpu_type,
            )
        )
    return contracts_jobs.Job(
        id=row.id,
        name=row.name,
        user=row.user,
        status=row.status,
        reason=reason(row.reason),
        gpus=row.gpus,
        gpu_type=row.gpu_type,
        nodes=row.nodes,
        duration=row.duration,
        priority=row.priority,
        created_at=row.created_at,
        queue_position=view.queue_position,
        estimated_start_at=view.estimated_start_at,
        promised_start_at=view.promised_start_at,
        estimated_start=_estimated_start(view),
        started_at=row.started_at,
        ends_at=row.ends_at,
        finished_at=row.finished_at,
        exit_code=row.exit_code,
        allocations=allocations,
        booking_id=row.booking_id,
        project=row.project,
        inactivity=row.inactivity,
        idle=_idle(row),
        shared_with=None if view.shared_with is None else list(view.shared_with),
        after=[
            JobDependencyOut(job=needed.job, when=needed.when, status=needed.status, state=needed.state)
            for needed in view.after
        ],
        attempt=row.attempt,
        retries=None if row.retries is None else _retries(row.retries, row.retried),
        array=None if row.array is None else _array(row.array, view.counts),
        element=None
        if row.element is None
        else JobElement(array=row.element.array_id, index=row.element.index, size=row.element.size),
        preemption=preemption(row.preemption),
        end_signal=end_signal(row.preemption),
        resources=ResourcesOut.of(row.resources),
        trace_id=None if row.trace is None else trace_id_of(row.trace),
    )


def _array(terms: ArrayTerms, counts: ArrayCounts | None) -> JobArray:
    """An array; without counts all of its elements wait."""
    return JobArray(size=terms.size, parallel=terms.parallel, **(counts or ArrayCounts(queued=terms.size))._asdict())


def _retries(terms: Retries, done: int) -> RetriesOut:
    return RetriesOut(max=terms.max, on=sorted(terms.on), done=done)


def job_spec(view: JobView, caller: Principal) -> JobSpec:
    """The request of a job. Only its owner sees the values of variables, which may be secrets."""
    row = view.reservation
    is_owner = row.user_id == caller.user_id
    return JobSpec(
        name=row.name,
        gpus=row.gpus,
        gpu_type=row.gpu_type,
        nodes=row.nodes,
        duration=row.duration,
        workload=WorkloadSpec(
            image=row.workload.image,
            command=list(row.workload.command),
            env={name: value if is_owner else None for name, value in row.workload.env},
            working_dir=row.workload.working_dir,
        ),
        priority=row.priority,
        booking_id=row.booking_id,
        project=row.project,
        secrets=[JobSecretOut(name=use.name, env=use.env, path=use.path) for use in row.workload.secrets],
        after=[AskedDependency(job=needed.job, when=needed.when) for needed in view.after],
        retries=None if row.retries is None else JobRetries(max=row.retries.max, on=sorted(row.retries.on)),
        disks=[JobDiskOut(name=use.name, path=use.path, read_only=use.read_only) for use in row.workload.disks],
        sync=None if (sync := row.workload.sync) is None else JobSyncOut(folder=sync.folder, fetch=list(sync.fetch)),
        array=None if row.array is None else ArrayTermsOut(size=row.array.size, parallel=row.array.parallel),
        preemptible=row.preemption.preemptible,
        min_runtime=row.preemption.min_runtime or None,
        end_signal=end_signal(row.preemption),
        resources=ResourcesOut.of(row.resources),
    )


def encode_accepted(row: Reservation, after: Sequence[KnownDependency] = ()) -> bytes:
    """The JSON of an accepted job that waits for `after`, as `job` shows it, without the model's work on each field.

    For the call whose time counts in microseconds. A test checks that no field of `contracts.Job` is missing.
    """
    shown: dict[str, object] = {
        "id": row.id,
        "name": row.name,
        "user": row.user,
        "status": row.status.value,
        "reason": {"code": row.reason.code.value, "detail": row.reason.detail},
        "gpus": row.gpus,
        "gpu_type": row.gpu_type,
        "nodes": row.nodes,
        "duration": iso8601(row.duration),
        "priority": row.priority,
        "created_at": rfc3339(row.created_at),
        **_NOT_YET,
        "booking_id": row.booking_id,
        "project": row.project,
        "inactivity": None if row.inactivity is None else iso8601(row.inactivity),
        "idle": None,
        "shared_with": [],
        "attempt": row.attempt,
        "retries": None if row.retries is None else _retries(row.retries, row.retried).model_dump(mode="json"),
    }
    if row.array is not None:
        shown["array"] = _array(row.array, None).model_dump(mode="json")
    if row.preemption is not NO_PREEMPTION:
        shown |= accepted_preemption(row.preemption)
    if (asked := ResourcesOut.of(row.resources)) is not None:
        shown["resources"] = asked.model_dump()
    if row.trace is not None:
        shown["trace_id"] = trace_id_of(row.trace)
    if after:
        shown["after"] = [
            {"job": needed.job, "when": needed.when.value, "status": needed.status.value, "state": needed.state.value}
            for needed in after
        ]
    return msgspec.json.encode(shown)


_NOT_YET: dict[str, object] = {
    "queue_position": None,
    "estimated_start_at": None,
    "promised_start_at": None,
    "estimated_start": None,
    "started_at": None,
    "ends_at": None,
    "finished_at": None,
    "exit_code": None,
    "allocations": [],
}


def _estimated_start(view: JobView) -> contracts_jobs.EstimatedStart | None:
    predicted = view.predicted_start
    return None if predicted is None else contracts_jobs.EstimatedStart(p50=predicted.p50, p90=predicted.p90)


def _idle(row: Reservation) -> IdleOut | None:
    if row.idle is None or row.status is not JobStatus.RUNNING:
        return None
    return IdleOut(since=row.idle.since, warned_at=row.idle.warned_at, release_at=row.idle.release_at)


def reason(value: Reason) -> ReasonOut:
    return ReasonOut(code=value.code, detail=value.detail)


def queue_entry(view: JobView) -> contracts_jobs.QueueEntry:
    row = view.reservation
    return contracts_jobs.QueueEntry(
        id=row.id,
        user=row.user,
        name=row.name,
        queue_position=view.queue_position,
        reason=reason(row.reason),
        gpus=row.gpus,
        gpu_type=row.gpu_type,
        nodes=row.nodes,
        duration=row.duration,
        priority=row.priority,
        created_at=row.created_at,
        estimated_start_at=view.estimated_start_at,
        promised_start_at=view.promised_start_at,
        estimated_start=_estimated_start(view),
        project=row.project,
    )


def gpu(view: GpuView, sight: Sight) -> contracts_nodes.GpuOut:
    """A GPU, with its holder if the caller may see that."""
    holder = None
    if view.holder_id is not None:
        shown = (view.holder_id, view.holder_user) if sight.sees(view.holder_user_id) else (None, None)
        yours = view.holder_user_id == sight.caller.user_id
        holder = contracts_nodes.Holder(id=shown[0], user=shown[1], yours=yours)
    return contracts_nodes.GpuOut(
        node=view.node,
        index=view.index,
        uuid=view.uuid,
        gpu_type=view.gpu_type,
        memory_bytes=view.memory_bytes,
        state=view.state,
        holder=holder,
        free_at=view.free_at,
        taken_at=view.taken_at,
        quarantined_at=view.health and view.health.quarantined_at,
        quarantined_by=view.health and view.health.quarantined_by,
        quarantine_reason=view.health and view.health.quarantine_reason,
        slow_since=view.health and view.health.slow_since,
        slow_reason=view.health and view.health.slow_reason,
    )


def node(view: NodeView) -> contracts_nodes.NodeOut:
    return contracts_nodes.NodeOut(
        name=view.name,
        ready=view.ready,
        schedulable=view.schedulable,
        detail=view.detail,
        gpu_types=list(view.gpu_types),
        gpus=view.gpus,
        free=view.free,
        taken_soon=view.taken_soon,
        last_seen_at=view.last_seen_at,
        labels=view.labels,
        zone=view.zone,
        logical_name=view.logical_name,
        taints=list(view.taints),
        fenced_at=view.fenced_at,
        fenced_by=view.fenced_by,
        cordoned_at=None if view.cordon is None else view.cordon.at,
        cordoned_by=None if view.cordon is None else view.cordon.by,
        cordon_reason=None if view.cordon is None else view.cordon.reason,
        quarantined_gpus=list(view.quarantined),
        gpu_links=None if view.links is None else link_words(view.links),
        cpus=_cpus(view.has),
        cpus_free=_cpus(view.has_free),
        memory_bytes=view.has.memory_bytes,
        memory_bytes_free=view.has_free.memory_bytes,
        cpu_jobs=contracts_nodes.KeptOut.of(view.keeps, view.keeps_free),
    )


def _cpus(share: Share) -> float | None:
    return None if share.cpu_milli is None else share.cpu_milli / MILLI


def unknown_pod(pod: UnknownPod) -> UnknownPodOut:
    return UnknownPodOut(
        name=pod.name,
        node=pod.node,
        gpu_indices=None if pod.gpu_indices is None else list(pod.gpu_indices),
        detail=pod.detail,
        first_seen_at=pod.first_seen_at,
        end_requested_at=pod.end_requested_at,
        end_requested_by=pod.end_requested_by,
    )


def event(record: EventRecord, sight: Sight) -> JobEvent:
    return JobEvent(
        id=record.id,
        at=record.at,
        kind=record.kind,
        actor=record.actor,
        before=record.before,
        after=record.after,
        reason=None if record.reason is None else reason(record.reason),
        data=_visible_data(record.data, sight),
    )


def audit_event(record: RecordedEvent, sight: Sight) -> EventOut:
    """An event of the audit log."""
    return EventOut(
        id=record.id,
        at=record.at,
        kind=record.kind,
        actor=record.actor,
        subject=record.subject,
        before=record.before,
        after=record.after,
        reason_code=record.reason_code,
        reason=record.reason or _why(record.data),
        data=_visible_data(record.data, sight),
    )


def _why(data: dict[str, Any]) -> str | None:
    """What the data of an event about something else than a reservation give as its reason."""
    why = data.get("why") or data.get("reason")
    return why if isinstance(why, str) else None


def _visible_data(data: dict[str, Any], sight: Sight) -> dict[str, Any]:
    """The data of an event; the ids of late jobs only if the caller sees all users."""
    if isinstance(data.get("late"), list) and not sight.sees(None):
        return {**data, "late": [None for _ in data["late"]]}
    return data


def token(record: TokenRecord) -> TokenOut:
    """A token, without its secret."""
    return TokenOut(
        id=record.id,
        user=record.user,
        name=record.name,
        created_at=record.created_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        last_used_at=record.last_used_at,
        scopes=in_order(record.scopes),
        made_with=record.made_with,
        session=record.session,
        budget=None if record.budget is None else _budget(record.budget),
    )


def _budget(budget: Budget) -> TokenBudgetOut:
    return TokenBudgetOut(
        token=budget.token_id,
        gpu_hours=round(budget.gpu_us / MICROS_AN_HOUR, 6),
        until=budget.until,
        used_gpu_hours=round(budget.charged_us / MICROS_AN_HOUR, 6),
    )


def user(record: UserRecord) -> contracts_people.UserOut:
    return contracts_people.UserOut(
        name=record.name, role=record.role, created_at=record.created_at, disabled_at=record.disabled_at
    )


def dead_letter(letter: DeadLetter) -> contracts_dead_letters.DeadLetterOut:
    return contracts_dead_letters.DeadLetterOut(
        id=letter.id,
        queue=letter.queue,
        enqueued_at=letter.enqueued_at,
        body=letter.body,
        error=letter.error,
        read_count=letter.read_count,
    )
