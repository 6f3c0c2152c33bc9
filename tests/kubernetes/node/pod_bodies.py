"""The statuses that a kubelet writes, field by field as Kubernetes has them."""

from typing import Any

from tests.kubernetes.api_client import JsonObject
from tests.kubernetes.emulated.store import stamp, utc_now


def pending(pod: JsonObject, reason: str, message: str | None = None) -> JsonObject:
    """Accepted by the node, its container waiting."""
    waiting = {"reason": reason} | ({"message": message} if message else {})
    return _status(pod, "Pending", {"waiting": waiting}, ready=False)


def running(pod: JsonObject, started_at: str) -> JsonObject:
    """Its container runs."""
    return _status(pod, "Running", {"running": {"startedAt": started_at}}, ready=True)


def ended(
    pod: JsonObject,
    exit_code: int,
    started_at: str | None,
    *,
    container_reason: str | None = None,
    container_message: str | None = None,
    reason: str | None = None,
    message: str | None = None,
    disruption: bool = False,
) -> JsonObject:
    """Its container has terminated; `reason` and `message` are the pod's, where the kubelet ended it."""
    terminated: JsonObject = {
        "exitCode": exit_code,
        "reason": container_reason or ("Completed" if exit_code == 0 else "Error"),
        "startedAt": started_at or "1970-01-01T00:00:00Z",
        "finishedAt": stamp(utc_now()),
        "containerID": _container_id(pod),
    }
    if container_message:
        terminated["message"] = container_message
    phase = "Succeeded" if exit_code == 0 and reason is None else "Failed"
    status = _status(pod, phase, {"terminated": terminated}, ready=False)
    status |= {key: value for key, value in (("reason", reason), ("message", message)) if value}
    if disruption:
        status["conditions"].append(_condition("DisruptionTarget", "True", "TerminationByKubelet", message))
    return status


def refused(pod: JsonObject, reason: str, message: str) -> JsonObject:
    """The kubelet does not admit the pod: no container ever existed."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": _start_time(pod)}


def _status(pod: JsonObject, phase: str, state: JsonObject, *, ready: bool) -> JsonObject:
    container = pod["spec"]["containers"][0]
    started = "running" in state
    said = "True" if ready else "False"
    why = None if ready else ("PodCompleted" if phase == "Succeeded" else "ContainersNotReady")
    kept = [condition for condition in pod["status"].get("conditions", []) if condition["type"] == "PodScheduled"]
    return {
        "phase": phase,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": _start_time(pod),
        "conditions": [
            *(kept or [_condition("PodScheduled", "True")]),
            _condition("Initialized", "True"),
            _condition("Ready", said, why),
            _condition("ContainersReady", said, why),
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "" if "waiting" in state else f"{container['image']}@sha256:{'0' * 64}",
                "ready": ready,
                "restartCount": 0,
                "started": started,
                "state": state,
                "lastState": {},
                **({} if "waiting" in state else {"containerID": _container_id(pod)}),
            }
        ],
    }


def _start_time(pod: JsonObject) -> str:
    return str(pod["status"].get("startTime") or stamp(utc_now()))


def _container_id(pod: JsonObject) -> str:
    return f"containerd://{pod['metadata']['uid'].replace('-', '')}"


def _condition(kind: str, status: str, reason: str | None = None, message: str | None = None) -> JsonObject:
    condition: dict[str, Any] = {"type": kind, "status": status, "lastProbeTime": None}
    condition["lastTransitionTime"] = stamp(utc_now())
    return condition | {key: value for key, value in (("reason", reason), ("message", message)) if value}
