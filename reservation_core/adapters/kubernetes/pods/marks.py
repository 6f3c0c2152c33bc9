"""What our pods carry: labels that find them, and annotations that say what they hold.

We select by what we made ourselves: ids and numbers. A user's words stay in annotations, which select nothing; the name
is also a label, as far as a label can hold it, for people who look for pods. People who may change pods can take labels
away while a pod goes on: then its name and its own variable, which nobody can change, say whose it is.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping, read_time, written_time
from reservation_core.domain.model import PodHolding, PodName, PodSpec
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
"""The finalizer of a pod that is to end while a create of the same name may still be carried out."""

NODE_GPUS = "gpu-dev/gpus"
"""The annotation of a Node in which the node agent lists its cards."""

NODE_LINKS = "gpu-dev/gpu-links"
"""The annotation of a Node that says how its cards are joined (see `link_words`)."""

_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")
_NAME = re.compile(rf"([a-z](?:[a-z0-9-]{{0,46}}[a-z0-9])?)-({_NUMBER.pattern})-({_NUMBER.pattern})")


def labels(spec: PodSpec) -> dict[str, str]:
    """The labels of a pod of ours."""
    made = {**attempt_labels(spec.name), RANK: str(spec.name.rank), USER_ID: str(spec.user_id)}
    user = label_value(spec.user)
    return {**made, USER: user} if user else made


def label_value(text: str) -> str:
    """A text as a label may hold it: 63 characters, `-` for what it may not. Two names may become one."""
    return _NOT_IN_LABELS.sub("-", text)[:63].strip("-_.")


def attempt_labels(name: PodName) -> dict[str, str]:
    """The labels that all pods of one attempt share, and by which a gang's service finds them."""
    return {MANAGED: "true", RESERVATION: name.reservation_id, ATTEMPT: str(name.attempt)}


def annotations(spec: PodSpec) -> dict[str, str]:
    """The annotations of a pod of ours; `holding_of` reads them back."""
    said = {
        USER: spec.user,
        GPU_INDICES: ",".join(str(index) for index in spec.gpu_indices),
        NODE: spec.node,
        PODS: str(spec.pods),
        DEADLINE: written_time(spec.deadline),
    }
    if spec.starts_at is not None:
        said[STARTS_AT] = written_time(spec.starts_at)
    if spec.ends_at is not None:
        said[ENDS_AT] = written_time(spec.ends_at)
    return said


def pod_name_of(pod: Mapping[str, Any]) -> PodName | None:
    """The identity of a pod: by its name and its labels, or without those by the variable that it was made with.

    None for a pod that is not ours.
    """
    name = _name_of(pod)
    return name if name is not None and (is_labelled(pod, name) or _was_made_as(pod, name)) else None


def is_labelled(pod: Mapping[str, Any], name: PodName) -> bool:
    """Whether a pod has the labels that it was made with: others may have taken some away, or changed them."""
    found = as_mapping(as_mapping(pod.get("metadata")).get("labels"))
    return (
        found.get(MANAGED) == "true"
        and found.get(RESERVATION) == name.reservation_id
        and found.get(ATTEMPT) == str(name.attempt)
        and found.get(RANK) == str(name.rank)
    )


def _name_of(pod: Mapping[str, Any]) -> PodName | None:
    name = as_mapping(pod.get("metadata")).get("name")
    parts = _NAME.fullmatch(name) if isinstance(name, str) else None
    return None if parts is None else PodName(parts[1], int(parts[2]), int(parts[3]))


def _was_made_as(pod: Mapping[str, Any], name: PodName) -> bool:
    made_with = {"name": JOB_ID_VARIABLE, "value": name.reservation_id}
    containers = as_list(as_mapping(pod.get("spec")).get("containers"))
    return any(made_with in as_list(as_mapping(container).get("env")) for container in containers)


def holding_of(pod: Mapping[str, Any]) -> PodHolding | None:
    """What a pod says that it holds; None when it does not say all of it, or says what can't be."""
    said = as_mapping(as_mapping(pod.get("metadata")).get("annotations"))
    node, indices, pods = said.get(NODE), said.get(GPU_INDICES), said.get(PODS)
    starts_at, ends_at = read_time(said.get(STARTS_AT)), read_time(said.get(ENDS_AT))
    if not isinstance(node, str) or not node or not isinstance(indices, str) or not _is_number(pods):
        return None
    numbers = indices.split(",")
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
