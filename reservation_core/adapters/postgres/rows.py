"""Convert rows of the tables to the domain's objects."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from reservation_core.adapters.postgres.sealing import Sealing, UnreadableError
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.gpu_use.idle_rules import IdleWarning
from reservation_core.domain.model import (
    NO_PREEMPTION,
    AllocatedGpu,
    ArrayElement,
    PodWorkload,
    Preemption,
    Reason,
    Reservation,
)
from reservation_core.domain.request_terms import (
    ArrayTerms,
    EndSignal,
    Resources,
    Retries,
    RetryCause,
    Share,
    SignalName,
)
from reservation_core.domain.sessions.secret_uses import SecretUse
from reservation_core.domain.statuses import JobStatus, ReasonCode, ReservationKind
from reservation_core.domain.sync.job_sync import JobSync
from reservation_core.ports.traces import known_traces


def reservation_of(row: Mapping[Any, Any], sealing: Sealing) -> Reservation:
    """A reservation from a row of `reservations` with the user's name as `user_name`."""
    return Reservation(
        id=row["id"],
        seq=row["seq"],
        kind=ReservationKind(row["kind"]),
        user_id=row["user_id"],
        user=row["user_name"],
        name=row["name"],
        status=JobStatus(row["status"]),
        reason=Reason(ReasonCode(row["reason_code"]), row["reason"]),
        gpus=row["gpus"],
        gpu_type=row["gpu_type"] if row["gpus"] else None,  # which names its queue
        nodes=row["nodes"],
        duration=row["duration"],
        priority=row["priority"],
        workload=workload_of(row["workload"], row["user_id"], sealing),
        created_at=row["created_at"],
        version=row["version"],
        attempt=row["attempt"],
        outcome=None if row["outcome"] is None else JobStatus(row["outcome"]),
        range_end=row["range_end"],
        started_at=row["started_at"],
        ends_at=row["ends_at"],
        finished_at=row["finished_at"],
        exit_code=row["exit_code"],
        warned_s=row["warned_s"],
        booking_id=row["booking_id"],
        project=row["project"],
        inactivity=row["inactivity"],
        held=row["held"],
        retries=_retries_of(row["retry_max"], row["retry_on"]),
        retried=row["retried"],
        idle=_warning_of(row),
        idle_from=row["idle_from"],
        preemption=_preemption_of(row),
        resources=_resources_of(row),
        unsettled_until=row["unsettled_until"],
        trace=_traced(row),
        array=_array_of(row),
        element=None
        if row["array_id"] is None
        else ArrayElement(row["array_id"], row["array_index"], row["array_size"]),
    )


def _traced(row: Mapping[Any, Any]) -> str | None:
    """The trace of a job, which log lines of this process name from now on."""
    trace: str | None = row["trace"]
    if trace is not None:
        known_traces.note(row["id"], trace)
    return trace


def _array_of(row: Mapping[Any, Any]) -> ArrayTerms | None:
    if row["array_size"] is None or row["array_id"] is not None:
        return None
    return ArrayTerms(row["array_size"], row["array_parallel"])


def share_of(cpu_milli: int | None, memory_bytes: int | None) -> Share | None:
    """A share of a node from its columns; None where nothing is asked for."""
    return None if cpu_milli is None and memory_bytes is None else Share(cpu_milli, memory_bytes)


def _resources_of(row: Mapping[Any, Any]) -> Resources | None:
    cpu_milli, memory_bytes, shm_bytes = row["cpu_milli"], row["memory_bytes"], row["shm_bytes"]
    if cpu_milli is None and memory_bytes is None and shm_bytes is None:  # most rows: nothing is made and compared
        return None
    return Resources(Share(cpu_milli, memory_bytes), shm_bytes)


def _retries_of(most: int | None, causes: list[str] | None) -> Retries | None:
    return None if most is None else Retries(most, frozenset(map(RetryCause, causes or ())))


def _preemption_of(row: Mapping[Any, Any]) -> Preemption:
    if not row["preemptible"] and row["end_signal"] is None and row["preempted_at"] is None and not row["preemptions"]:
        return NO_PREEMPTION
    return replace(
        preemption_terms(row),
        signalled_at=row["signalled_at"],
        asked_at=row["preempted_at"],
        times=row["preemptions"],
    )


def preemption_terms(row: Mapping[Any, Any]) -> Preemption:
    """What a job asked for, without what has become of it."""
    signal = None
    if row["end_signal"] is not None:
        signal = EndSignal(SignalName(row["end_signal"]), row["end_signal_before"])
    return Preemption(bool(row["preemptible"]), row["min_runtime"] or timedelta(0), signal)


def _warning_of(row: Mapping[Any, Any]) -> IdleWarning | None:
    if row["idle_warned_at"] is None:
        return None
    return IdleWarning(row["idle_since"], row["idle_warned_at"], row["idle_release_at"])


def workload_of(stored: dict[str, Any], user_id: int, sealing: Sealing) -> PodWorkload:
    """A workload from its stored document."""
    stored_env = stored.get("env", {})
    env, unread = stored_env, None
    if isinstance(stored_env, str):
        try:
            env = json.loads(sealing.open(stored_env, _whose(user_id)))
        except UnreadableError:
            env, unread = {}, stored_env
    return PodWorkload(
        command=tuple(stored.get("command", ())),
        image=stored.get("image"),
        env=tuple(env.items()),
        working_dir=stored.get("working_dir"),
        unread=unread,
        secrets=tuple(SecretUse(**use) for use in stored.get("secrets", ())),
        sync=_sync_of(stored.get("sync")),
        disks=tuple(DiskUse(**use) for use in stored.get("disks", ())),
    )


def workload_document(workload: PodWorkload, user_id: int, sealing: Sealing) -> dict[str, Any]:
    """The stored document of a workload; its variables are sealed if there is a key."""
    env: str | dict[str, str] = dict(workload.env)
    if workload.unread is not None:
        env = workload.unread
    elif env and sealing.seals:
        env = sealing.seal(json.dumps(env), _whose(user_id))
    document: dict[str, Any] = {"command": list(workload.command), "env": env}
    if workload.image is not None:
        document["image"] = workload.image
    if workload.working_dir is not None:
        document["working_dir"] = workload.working_dir
    if workload.secrets:
        document["secrets"] = [
            {"name": use.name, "env": use.env} if use.path is None else {"name": use.name, "path": use.path}
            for use in workload.secrets
        ]
    if workload.sync is not None:
        document["sync"] = {"folder": workload.sync.folder, "fetch": list(workload.sync.fetch)}
    if workload.disks:
        document["disks"] = [use._asdict() for use in workload.disks]
    return document


def _sync_of(stored: dict[str, Any] | None) -> JobSync | None:
    return None if stored is None else JobSync(stored["folder"], tuple(stored["fetch"]))


def _whose(user_id: int) -> str:
    return f"variables of user {user_id}"


def allocated_gpu_of(row: Mapping[Any, Any]) -> AllocatedGpu:
    """An allocated GPU from a row of the ledger."""
    return AllocatedGpu(
        gpu_id=row["gpu_id"],
        node=row["node"],
        index=row["card_index"],
        uuid=row["uuid"],
        rank=row["rank"],
        starts_at=row["starts_at"],
        ends_at=row["ends_at"],
        held=row["held"],
        claimed_by=row["claimed_by"],
        gpu_resource=row["gpu_resource"],
        gpu_type=row["gpu_type"],
    )


def seconds(duration: timedelta) -> float:
    """A duration in seconds, for make_interval of PostgreSQL."""
    return duration.total_seconds()
