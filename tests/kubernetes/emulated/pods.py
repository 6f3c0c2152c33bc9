"""What an API server does with pods beyond keeping them: defaults, checks, what may change, binding, grace."""

import re
from copy import deepcopy
from typing import Any

from tests.kubernetes.emulated.store import ApiError, JsonObject, stamp, utc_now

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_ENV_NAME = re.compile(r"^[^=\0]+$")
_POD_DEFAULTS: JsonObject = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
}
_CONTAINER_DEFAULTS: JsonObject = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}


def check_metadata(kind: str, metadata: JsonObject) -> None:
    """Raises ApiError 422 for a name or a label that no object may have."""
    name = metadata.get("name", "")
    pattern = _LABEL if kind in ("Service", "Namespace") else _NAME
    limit = 63 if kind in ("Service", "Namespace") else 253
    if not name:
        raise invalid(kind, name, "metadata.name", "Required value: name or generateName is required")
    if len(name) > limit or not pattern.match(name):
        raise invalid(kind, name, "metadata.name", f'Invalid value: "{name}": must be a lowercase RFC 1123 name')
    for key, value in (metadata.get("labels") or {}).items():
        if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.match(value):
            raise invalid(kind, name, "metadata.labels", f'Invalid value: "{value}": {key} is no label value')


def new_pod(pod: JsonObject) -> JsonObject:
    """A pod as it is stored when it is created. Raises ApiError 422."""
    pod = deepcopy(pod)
    spec = pod.setdefault("spec", {})
    name = pod["metadata"].get("name") or pod["metadata"].get("generateName", "")
    containers = spec.get("containers") or []
    if not containers:
        raise invalid("Pod", name, "spec.containers", "Required value")
    for key, value in _POD_DEFAULTS.items():
        spec.setdefault(key, deepcopy(value))
    spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(toleration.get("key") in (key, None) for toleration in spec["tolerations"]):
            tolerated = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            spec["tolerations"].append(tolerated)
    for index, container in enumerate([*containers, *spec.get("initContainers", [])]):
        _check_container(name, f"spec.containers[{index}]", container)
        for key, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(key, deepcopy(value))
    for key in ("hostname", "subdomain"):
        if spec.get(key) and not (_LABEL.match(spec[key]) and len(spec[key]) <= 63):
            raise invalid("Pod", name, f"spec.{key}", f'Invalid value: "{spec[key]}": must be an RFC 1123 label')
    pod["status"] = {"phase": "Pending", "qosClass": _qos(containers)}
    return pod


def _check_container(pod: str, path: str, container: JsonObject) -> None:
    if not container.get("name"):
        raise invalid("Pod", pod, f"{path}.name", "Required value")
    if not container.get("image"):
        raise invalid("Pod", pod, f"{path}.image", "Required value")
    for variable in container.get("env", []):
        if not _ENV_NAME.match(str(variable.get("name") or "")):
            raise invalid("Pod", pod, f"{path}.env", f"Invalid value: {variable.get('name')!r}")
        if not isinstance(variable.get("value", ""), str):
            raise ApiError(400, "BadRequest", f"{path}.env: cannot unmarshal {variable['name']} into string")
    resources = container.get("resources") or {}
    for key, wanted in (resources.get("requests") or {}).items():
        limit = (resources.get("limits") or {}).get(key)
        if "/" in key and str(limit) != str(wanted):
            why = f'Invalid value: "{wanted}": must be equal to {key} limit of {limit}'
            raise invalid("Pod", pod, f"{path}.resources.requests", why)
    for key, limit in (resources.get("limits") or {}).items():
        if "/" in key:
            resources.setdefault("requests", {}).setdefault(key, limit)


def _qos(containers: list[JsonObject]) -> str:
    resources = [container.get("resources") or {} for container in containers]
    if not any(resource.get("requests") or resource.get("limits") for resource in resources):
        return "BestEffort"
    kinds = ("cpu", "memory")
    full = all(
        resource.get("limits", {}).get(kind)
        and resource.get("requests", resource["limits"]).get(kind) == resource["limits"][kind]
        for resource in resources
        for kind in kinds
    )
    return "Guaranteed" if full else "Burstable"


def check_pod_update(old: JsonObject, new: JsonObject) -> None:
    """Raises ApiError 422 for a change that a pod's spec does not take."""
    name = old["metadata"]["name"]
    before, after = deepcopy(old["spec"]), deepcopy(new["spec"])
    was, wanted = before.pop("activeDeadlineSeconds", None), after.pop("activeDeadlineSeconds", None)
    if was is not None and (wanted is None or wanted > was):
        why = f"Invalid value: {wanted}: must be less than or equal to previous value"
        raise invalid("Pod", name, "spec.activeDeadlineSeconds", why)
    for spec in (before, after):
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            container.pop("image", None)
    gates = before.pop("schedulingGates", None) or []
    if all(gate in gates for gate in after.get("schedulingGates") or []):
        after.pop("schedulingGates", None)  # they can only be taken away
    old_tolerations, new_tolerations = before.pop("tolerations", []), after.pop("tolerations", [])
    if before != after or any(toleration not in new_tolerations for toleration in old_tolerations):
        why = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
            " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        raise invalid("Pod", name, "spec", why)


def bound_pod(pod: JsonObject, binding: JsonObject) -> JsonObject:
    """The pod with the node that a scheduler chose, and the annotations of its choice.

    Raises ApiError 409 where one was chosen before, or another pod of that name was meant.
    """
    name = pod["metadata"]["name"]
    meant = binding.get("metadata") or {}
    for key in ("uid", "resourceVersion"):
        if meant.get(key) not in (None, "", pod["metadata"][key]):
            why = f"Precondition failed: {key} in precondition: {meant[key]}, in object meta: {pod['metadata'][key]}"
            raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on pods "{name}": {why}')
    node = binding.get("target", {}).get("name")
    if not node:
        raise invalid("Binding", name, "target.name", "Required value")
    taken = pod["spec"].get("nodeName")
    if taken or pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is already assigned to node {taken!r}" if taken else f"pod {name} is being deleted"
        raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{name}": {why}')
    bound = deepcopy(pod)
    bound["spec"]["nodeName"] = node
    if meant.get("annotations"):
        bound["metadata"]["annotations"] = {**(bound["metadata"].get("annotations") or {}), **meant["annotations"]}
    conditions = [
        condition for condition in bound["status"].get("conditions", []) if condition["type"] != "PodScheduled"
    ]
    now = stamp(utc_now())
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    bound["status"]["conditions"] = [*conditions, scheduled]
    return bound


def pod_grace(pod: JsonObject, wanted: int | None) -> int:
    """How long a deleted pod has: what no kubelet looks after any more goes at once."""
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace: Any = pod["spec"]["terminationGracePeriodSeconds"] if wanted is None else wanted
    return 1 if grace < 0 else int(grace)


def invalid(kind: str, name: str, path: str, why: str) -> ApiError:
    """422, with the field that is at fault."""
    details = {
        "name": name,
        "kind": kind,
        "causes": [{"reason": why.split(":", maxsplit=1)[0], "message": why, "field": path}],
    }
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {path}: {why}', details)
