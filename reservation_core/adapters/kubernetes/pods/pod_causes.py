"""Why a pod does not start or why it ended, with the next step.

Reasons of the API and the kubelet become our reason codes; their messages are quoted, bounded and on one line.
"""

import re
from collections.abc import Mapping
from typing import Any

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import ReasonCode

_LONGEST_QUOTE = 400
_AGAIN = "Submit the job again."
_NOT_EXECUTABLE = 126
_NOT_FOUND = 127

_PULLING = {
    "ErrImagePull": "The image can't be pulled",
    "ImagePullBackOff": "The image can't be pulled, and pulling is tried again after a while",
    "ErrImageNeverPull": "The image is not on the node, and may not be pulled there",
    "RegistryUnavailable": "The image's registry does not answer",
    "ImageInspectError": "The node can't read the image it has pulled",
    "SignatureValidationFailed": "The image's signature is not accepted on the node",
    "InvalidImageName": "This can't be the name of an image",
}
_CREATING = frozenset(
    {
        "CreateContainerError",
        "CreateContainerConfigError",
        "CreatePodSandboxError",
        "ConfigPodSandboxError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
        "RunContainerError",
        "CrashLoopBackOff",
    }
)
_EVICTED = {
    "Evicted": "The node was short of memory or disk and ended the pod",
    "Preempting": "The node made room for a more important pod",
    "Preempted": "A more important pod took its place",
    "Terminated": "The node shuts down",
    "Shutdown": "The node shuts down",
    "NodeShutdown": "The node shuts down",
}
_DISRUPTIONS = {
    "PreemptionByScheduler": (ReasonCode.EVICTED, "A more important pod took its place"),
    "EvictionByEvictionAPI": (ReasonCode.EVICTED, "The pod was evicted, as when a node is drained"),
    "DeletionByTaintManager": (ReasonCode.EVICTED, "The node got a taint that the pod may not stay with"),
    "TerminationByKubelet": (ReasonCode.EVICTED, "The node ended the pod, being short of something or shutting down"),
    "DeletionByPodGC": (ReasonCode.NODE_LOST, "The pod's node is no longer part of the cluster"),
}
_LOST = frozenset({"NodeLost", "NodeUnreachable"})
_NO_SUCH_IMAGE = re.compile(
    r"not found|code = NotFound|(manifest|name) unknown|does not exist|"
    r"\bunauthorized\b|403 Forbidden|authorization failed|authentication required|"
    r"access (denied|to the resource is denied)",
    re.IGNORECASE,
)
_PASSING_PULL = re.compile(r"toomanyrequests|429 Too Many|\b50[0-9]\b|time-?out|refused|no such host", re.IGNORECASE)
_MISSING_PROGRAM = re.compile(r"executable file not found|exec:? .*no such file or directory|exec format error")


def quoted(message: object) -> str:
    """A message of the cluster as the end of a sentence: one line, bounded, without control characters."""
    if not isinstance(message, str):
        return "."
    text = " ".join("".join(c if c.isprintable() else " " for c in message[: 4 * _LONGEST_QUOTE]).split())
    if len(text) > _LONGEST_QUOTE:
        text = text[:_LONGEST_QUOTE].rstrip() + " …"
    return f": {text.rstrip('.')}." if text.rstrip(".") else "."


def cause_of_waiting(waiting: Mapping[str, Any]) -> Reason | None:
    """Why a container does not start; None while it is just starting."""
    word = waiting.get("reason")
    if not isinstance(word, str):
        return None
    message = quoted(waiting.get("message"))
    if word in _PULLING:
        remedy = "Check that its name and tag are right, and that this cluster may pull it."
        return Reason(ReasonCode.IMAGE_PULL_FAILED, f"{_PULLING[word]}{message} {remedy}")
    if word in _CREATING:
        remedy = "Look at the command, the working directory and the image; if they are right, tell an administrator."
        return Reason(ReasonCode.START_FAILED, f"The node can't start the container{message} {remedy}")
    return None


def cause_of_waiting_before(waiting: Mapping[str, Any]) -> Reason | None:
    """Why an init container does not start, which is the server's; None while it is just starting."""
    cause = cause_of_waiting(waiting)
    if cause is None:
        return None
    what = "An image of this server, which prepares the pod for the job, can't be started"
    return Reason(cause.code, f"{what}{quoted(waiting.get('message') or waiting['reason'])} Tell an administrator.")


def is_hopeless(waiting: Mapping[str, Any]) -> bool:
    """Whether a container can never start on any node."""
    return waiting.get("reason") == "InvalidImageName"


def is_hopeless_on_node(waiting: Mapping[str, Any]) -> bool:
    """Whether a container can never start on this node, because the node's registry has no such image for it.

    Other nodes may have other mirrors or credentials. An unreachable or rate-limited registry is a passing failure.
    """
    match waiting.get("reason"):
        case "ErrImageNeverPull":
            return True
        case "ErrImagePull" | "ImagePullBackOff":
            message = str(waiting.get("message"))
            return _NO_SUCH_IMAGE.search(message) is not None and _PASSING_PULL.search(message) is None
        case _:
            return False


def cause_of_unschedulable(pod: Mapping[str, Any]) -> Reason | None:
    """Why the pod is unschedulable; None when it is scheduled or the scheduler has not tried yet."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    message = quoted(scheduled.get("message"))
    if scheduled.get("reason") == "SchedulingGated":
        detail = f"Something in the cluster holds the pod back{message} An administrator can check its gates."
    else:
        detail = f"Its node can't take the pod yet{message} If that goes on, an administrator should look at the node."
    return Reason(ReasonCode.UNSCHEDULABLE, detail)


def cause_of_pod_status(pod: Mapping[str, Any]) -> Reason | None:
    """Why the whole pod was ended, by its `status.reason`; None for other reasons."""
    status = as_mapping(pod.get("status"))
    word, message = status.get("reason"), quoted(status.get("message"))
    if not isinstance(word, str):
        return None
    if word == "DeadlineExceeded":
        return Reason(
            ReasonCode.DURATION_REACHED,
            "The cluster ended the pod at its deadline. Submit the job again with a longer duration if it needs one.",
        )
    if word in _LOST:
        return Reason(ReasonCode.NODE_LOST, f"The pod's node does not answer{message} {_AGAIN}")
    if word in _EVICTED:
        return Reason(ReasonCode.EVICTED, f"{_EVICTED[word]}{message} {_AGAIN}")
    return None


def cause_of_disruption(pod: Mapping[str, Any]) -> Reason | None:
    """The disruption by which Kubernetes ended the pod; None without one."""
    target = condition(pod, "DisruptionTarget")
    word = target.get("reason")
    if target.get("status") != "True" or not isinstance(word, str):
        return None
    code, what = _DISRUPTIONS.get(word, (ReasonCode.EVICTED, "The cluster ended the pod"))
    return Reason(code, f"{what}{quoted(target.get('message'))} {_AGAIN}")


def cause_of_node_rejection(pod: Mapping[str, Any]) -> Reason | None:
    """Why the node rejected a pod; only for pods that failed without having run."""
    status = as_mapping(pod.get("status"))
    word = status.get("reason")
    if not isinstance(word, str) or not word:
        return None
    message = quoted(f"{word}: {status.get('message') or 'it does not say more'}")
    return Reason(ReasonCode.START_FAILED, f"The node did not accept the pod{message} {_AGAIN}")


def cause_of_preparation(terminated: Mapping[str, Any]) -> Reason | None:
    """Why an init container failed, before which nothing of the job ran; None where none did."""
    code = exit_code_of(terminated)
    if code is None:
        return None
    message = quoted(terminated.get("message"))
    what = f"The pod could not be prepared for the job, as an init container ended with exit code {code}"
    return Reason(ReasonCode.START_FAILED, f"{what}{message} {_AGAIN} If that does not help, tell an administrator.")


def cause_of_exit(terminated: Mapping[str, Any]) -> Reason | None:
    """Why a container ended; None where its exit code is the whole answer."""
    word, message = terminated.get("reason"), quoted(terminated.get("message"))
    match word:
        case "OOMKilled":
            detail = (
                "The job used more memory than its pod may have, and was killed. Make it use less, or ask for more"
                " GPUs: memory comes with them."
            )
            return Reason(ReasonCode.OUT_OF_MEMORY, detail)
        case "StartError" | "ContainerCannotRun":
            detail = f"The command can't be run{message} Check that the image holds it, and submit the job again."
            return Reason(ReasonCode.START_FAILED, detail)
        case "ContainerStatusUnknown":
            return Reason(ReasonCode.POD_LOST, f"The node no longer knows how the container ended{message} {_AGAIN}")
        case _:
            return None


def exit_code_of(terminated: Mapping[str, Any]) -> int | None:
    """The exit code, 128 plus the number of a signal; None when the node does not know it.

    As in a shell, a missing command has 127 and one that can't be run has 126, whatever the container runtime reports.
    """
    code = terminated.get("exitCode")
    if not isinstance(code, int) or isinstance(code, bool) or terminated.get("reason") == "ContainerStatusUnknown":
        return None
    if terminated.get("reason") in ("StartError", "ContainerCannotRun"):
        return _NOT_FOUND if _MISSING_PROGRAM.search(str(terminated.get("message"))) else _NOT_EXECUTABLE
    signal = terminated.get("signal")
    if code == 0 and isinstance(signal, int) and not isinstance(signal, bool) and signal > 0:
        return 128 + signal
    return code


def condition(thing: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """One condition in a pod's or a node's status; empty without it."""
    conditions = map(as_mapping, as_list(as_mapping(thing.get("status")).get("conditions")))
    return next((entry for entry in conditions if entry.get("type") == kind), {})
