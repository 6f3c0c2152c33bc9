"""Labels that select our pods, and annotations with the GPUs that they hold.

Selectors use ids and numbers of our own. User input stays in annotations; the user's name is also a label, shortened,
for searches with kubectl. Labels can be removed from a running pod: its name and its immutable environment variable
then identify it.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping, format_time, read_time
from reservation_core.domain.model import PodHolding, PodName, PodSpec
from reservation_core.domain.pods.cards_in_containers import NO_CARDS, NVIDIA_VISIBLE_DEVICES
from reservation_core.domain.pods.pod_environment import JOB_ID_VARIABLE

MANAGED = "gpu-dev/managed"
RESERVATION = "gpu-dev/reservation"
ATTEMPT = "gpu-dev/attempt"
RANK = "gpu-dev/rank"
USER_ID = "gpu-dev/user-id"

USER = "gpu-dev/user"
GPU_INDICES = "gpu-dev/gpu-indices"
NODE = "gpu-dev/node"
PODS = "gpu-dev/pods"
STARTS_AT = "gpu-dev/starts-at"
ENDS_AT = "gpu-dev/ends-at"
DEADLINE = "gpu-dev/deadline"

NAME_KEPT = "gpu-dev/name-kept"
"""The finalizer of a pod that ends while a create of the same name may still be carried out."""

NODE_GPUS = "gpu-dev/gpus"
"""The annotation of a Node in which the node agent lists its GPUs."""

NODE_LINKS = "gpu-dev/gpu-links"
"""The annotation of a Node with the links between its GPUs (see `link_words`)."""

_SEES_NO_GPU = {"name": NVIDIA_VISIBLE_DEVICES, "value": NO_CARDS}
"""A variable of pods whose job has no GPUs. Annotations change, variables don't: without it an empty mark is broken."""

_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")
_NAME = re.compile(rf"([a-z](?:[a-z0-9-]{{0,46}}[a-z0-9])?(?:\.[0-9]{{1,4}})?)-({_NUMBER.pattern})-({_NUMBER.pattern})")


def labels(spec: PodSpec) -> dict[str, str]:
    ids = {**attempt_labels(spec.name), RANK: str(spec.name.rank), USER_ID: str(spec.user_id)}
    # At most 63 characters of a restricted set, so two users may get the same value.
    user = _NOT_IN_LABELS.sub("-", spec.user)[:63].strip("-_.")
    return {**ids, USER: user} if user else ids


def attempt_labels(name: PodName) -> dict[str, str]:
    """The common labels of all pods of one attempt, which a gang's service selects."""
    return {MANAGED: "true", RESERVATION: name.reservation_id, ATTEMPT: str(name.attempt)}


def annotations(spec: PodSpec) -> dict[str, str]:
    """The annotations of a pod of ours; `holding_of` reads them."""
    written = {
        USER: spec.user,
        GPU_INDICES: ",".join(str(index) for index in spec.gpu_indices),
        NODE: spec.node,
        PODS: str(spec.pods),
        DEADLINE: format_time(spec.deadline),
    }
    if spec.starts_at is not None:
        written[STARTS_AT] = format_time(spec.starts_at)
    if spec.ends_at is not None:
        written[ENDS_AT] = format_time(spec.ends_at)
    return written


def pod_name_of(pod: Mapping[str, Any]) -> PodName | None:
    """The identity of a pod of ours, by its name and its labels or else its environment variable; None for others."""
    name = _name_of(pod)
    return name if name is not None and (is_labelled(pod, name) or _was_created_as(pod, name)) else None


def is_labelled(pod: Mapping[str, Any], name: PodName) -> bool:
    """Whether a pod still has the labels that it was created with."""
    present = as_mapping(as_mapping(pod.get("metadata")).get("labels"))
    return {**attempt_labels(name), RANK: str(name.rank)}.items() <= present.items()


def _name_of(pod: Mapping[str, Any]) -> PodName | None:
    name = as_mapping(pod.get("metadata")).get("name")
    parts = _NAME.fullmatch(name) if isinstance(name, str) else None
    return None if parts is None else PodName(parts[1], int(parts[2]), int(parts[3]))


def _was_created_as(pod: Mapping[str, Any], name: PodName) -> bool:
    return _has_variable(pod, {"name": JOB_ID_VARIABLE, "value": name.reservation_id})


def _has_variable(pod: Mapping[str, Any], variable: Mapping[str, str]) -> bool:
    containers = as_list(as_mapping(pod.get("spec")).get("containers"))
    return any(variable in as_list(as_mapping(container).get("env")) for container in containers)


def holding_of(pod: Mapping[str, Any]) -> PodHolding | None:
    """The GPUs and times in a pod's annotations; None when some are missing or invalid."""
    present = as_mapping(as_mapping(pod.get("metadata")).get("annotations"))
    node, indices, pods = present.get(NODE), present.get(GPU_INDICES), present.get(PODS)
    starts_at, ends_at = read_time(present.get(STARTS_AT)), read_time(present.get(ENDS_AT))
    if not isinstance(node, str) or not node or not isinstance(indices, str) or not _is_number(pods):
        return None
    numbers = [] if not indices and _has_variable(pod, _SEES_NO_GPU) else indices.split(",")
    if len(numbers) > 1024 or not all(_is_number(number) for number in numbers):
        return None
    gpu_indices = tuple(int(number) for number in numbers)
    bound_to = as_mapping(pod.get("spec")).get("nodeName")
    if len(set(gpu_indices)) < len(gpu_indices) or int(pods) < 1 or bound_to not in (None, "", node):
        return None
    if starts_at is None or ends_at is None or ends_at <= starts_at:
        return None
    return PodHolding(node, gpu_indices, int(pods), starts_at, ends_at)


def _is_number(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _NUMBER.fullmatch(value) is not None
