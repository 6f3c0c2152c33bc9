"""Read the status of our pods from Pod objects: phases, typed causes, exit codes.

Reading never raises: fields of the wrong type count as absent. Error answers never get here, so they never count as the
state of a pod.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, assert_never

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping, read_time
from reservation_core.adapters.kubernetes.pods.built_pods import CONTAINER
from reservation_core.adapters.kubernetes.pods.marks import holding_of, pod_name_of
from reservation_core.adapters.kubernetes.pods.pod_causes import (
    cause_of_disruption,
    cause_of_exit,
    cause_of_node_rejection,
    cause_of_pod_status,
    cause_of_preparation,
    cause_of_unschedulable,
    cause_of_waiting,
    cause_of_waiting_before,
    condition,
    exit_code_of,
    is_hopeless,
    is_hopeless_on_node,
)
from reservation_core.domain.model import PodPhase, PodStatus, Reason
from reservation_core.domain.statuses import ReasonCode

_OVER = ("Succeeded", "Failed")
_FIRST_YEAR = 1971  # the API writes unset times as year 1 or 1970
_SIGNALLED = 128
_INITIALIZING = "PodInitializing"
_DELETED = Reason(
    ReasonCode.POD_DELETED, "Somebody deleted the job's pod in the cluster. Submit the job again, and ask who did it."
)


def read_pod_status(pod: Mapping[str, Any]) -> PodStatus | None:
    """Read an object of our namespace; None for a pod that is not ours. Never `gone`, as a gone pod has no object."""
    name = pod_name_of(pod)
    if name is None:
        return None
    state = _workload_state(pod)
    ended = as_mapping(state.get("terminated"))
    phase = _phase(pod, state)
    started_at = _time(as_mapping(state.get("running")).get("startedAt")) or _time(ended.get("startedAt"))
    cause_of_end = cause_of_exit(ended)
    if cause_of_end is not None and cause_of_end.code is ReasonCode.START_FAILED:
        started_at = None
    over = phase is PodPhase.FINISHED
    waiting = _waiting_before(pod) or as_mapping(state.get("waiting")) if phase is PodPhase.PENDING else {}
    return PodStatus(
        name=name,
        phase=phase,
        started_at=started_at,
        finished_at=_finished_at(pod, ended) if over else None,
        exit_code=_exit_code(pod, ended) if over else None,
        reason=_reason(pod, phase, state, started_at),
        holding=holding_of(pod),
        hopeless=is_hopeless(waiting),
        hopeless_here=is_hopeless_on_node(waiting),
        created_at=_time(as_mapping(pod.get("metadata")).get("creationTimestamp")),
    )


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Whether all of a pod's processes have ended: by its phase, and without a running container."""
    status = as_mapping(pod.get("status"))
    return has_final_phase(pod) and not any("running" in state for state in _states(status))


def has_final_phase(pod: Mapping[str, Any]) -> bool:
    """Whether the phase says that the pod is over; during an eviction, containers may still run."""
    return as_mapping(pod.get("status")).get("phase") in _OVER


def _phase(pod: Mapping[str, Any], state: Mapping[str, Any]) -> PodPhase:
    if is_finished(pod):
        return PodPhase.FINISHED
    word = as_mapping(pod.get("status")).get("phase")
    # `Unknown` means that the node does not answer: its containers may still run.
    ran = "running" in state or "terminated" in state
    return (
        PodPhase.RUNNING
        if word in ("Running", *_OVER) or "running" in state or (word == "Unknown" and ran)
        else (PodPhase.PENDING)
    )


def _reason(
    pod: Mapping[str, Any], phase: PodPhase, state: Mapping[str, Any], started_at: datetime | None
) -> Reason | None:
    match phase:
        case PodPhase.PENDING:
            before = _waiting_before(pod)
            held = cause_of_waiting_before(before) if before else cause_of_waiting(as_mapping(state.get("waiting")))
            return cause_of_pod_status(pod) or _leaving(pod) or held or cause_of_unschedulable(pod)
        case PodPhase.RUNNING:
            return cause_of_pod_status(pod) or _leaving(pod)
        case PodPhase.FINISHED:
            return _end(pod, as_mapping(state.get("terminated")), started_at)
        case PodPhase.GONE:
            return None
        case _:
            assert_never(phase)


def _leaving(pod: Mapping[str, Any]) -> Reason | None:
    """Why an unfinished pod is being deleted; the caller knows from the job's row whether we deleted it."""
    if as_mapping(pod.get("metadata")).get("deletionTimestamp") is None:
        return None
    return cause_of_disruption(pod) or _DELETED


def _end(pod: Mapping[str, Any], ended: Mapping[str, Any], started_at: datetime | None) -> Reason | None:
    """Why a finished pod ended; None where its exit code is the whole answer."""
    if _ended_by_deletion(pod, ended):
        return cause_of_pod_status(pod) or cause_of_disruption(pod) or _DELETED
    if as_mapping(pod.get("status")).get("phase") == "Succeeded":
        return None
    cause = cause_of_pod_status(pod) or cause_of_exit(ended) or cause_of_disruption(pod)
    if cause is None and started_at is None:
        cause = cause_of_node_rejection(pod) or cause_of_preparation(_ended_before(pod))
    if cause is None and exit_code_of(ended) == 0:
        detail = "The command ended with exit code 0, but the cluster says that its pod failed. Look at the job's log."
        cause = Reason(ReasonCode.POD_LOST, detail)
    return cause


def _ended_by_deletion(pod: Mapping[str, Any], ended: Mapping[str, Any]) -> bool:
    """Whether the workload ended because of the pod's deletion, and not before it. Times are in whole seconds."""
    metadata = as_mapping(pod.get("metadata"))
    due, finished_at = _time(metadata.get("deletionTimestamp")), _time(ended.get("finishedAt"))
    grace = metadata.get("deletionGracePeriodSeconds")
    if due is None or not isinstance(grace, int) or not 0 <= grace < 2**31:
        return False
    asked_at = due - timedelta(seconds=grace)
    if finished_at is None:
        return not ended and not as_mapping(pod.get("status")).get("reason")
    code = exit_code_of(ended)
    return finished_at > asked_at or (finished_at == asked_at and (code is None or code > _SIGNALLED))


def _exit_code(pod: Mapping[str, Any], ended: Mapping[str, Any]) -> int | None:
    if not ended and as_mapping(pod.get("status")).get("phase") == "Succeeded":
        return 0
    return exit_code_of(ended)


def _finished_at(pod: Mapping[str, Any], ended: Mapping[str, Any]) -> datetime | None:
    at = _time(ended.get("finishedAt"))
    for kind in ("DisruptionTarget", "Ready"):
        at = at or _time(condition(pod, kind).get("lastTransitionTime"))
    return at


def _workload_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the workload's container: `{running|waiting|terminated: {…}}`, empty before it has one."""
    statuses = [as_mapping(status) for status in as_list(as_mapping(pod.get("status")).get("containerStatuses"))]
    named = [container_status for container_status in statuses if container_status.get("name") == CONTAINER]
    state = as_mapping((named or statuses or [{}])[0].get("state"))
    return {kind: what for kind, what in state.items() if isinstance(what, Mapping)}


def _waiting_before(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an init container waits for that can't start, and so the workload's container; empty if none does."""
    for before in _init_states(pod):
        waiting = as_mapping(before.get("waiting"))
        if waiting.get("reason") not in (None, _INITIALIZING):
            return waiting
    return {}


def _ended_before(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the init container ended that failed; empty if none did."""
    for before in _init_states(pod):
        ended = as_mapping(before.get("terminated"))
        if exit_code_of(ended) not in (None, 0):
            return ended
    return {}


def _init_states(pod: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for container_status in as_list(as_mapping(pod.get("status")).get("initContainerStatuses")):
        yield as_mapping(as_mapping(container_status).get("state"))


def _states(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for container_status in as_list(status.get(kind)):
            state = as_mapping(as_mapping(container_status).get("state"))
            yield {key: what for key, what in state.items() if what is not None}


def _time(text: object) -> datetime | None:
    at = read_time(text)
    return None if at is None or at.year < _FIRST_YEAR else at
