"""Questions and answers of Volcano's plugin `extender`, which has read answers in three ways so far.

1.7 reads a text in `errorMessage`; 1.8 and 1.9 a list of statuses in `status`; 1.10 and newer a text in `status`, with
a `code`. A list where a text is expected, or the reverse, is an error to it: the node is then refused without our
reason, and taken where the plugin is told to ignore errors. So who can be recognised is answered in his own words.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from gpu_admission.json_walk import BadJsonError, JsonWalk, member, text_member
from gpu_admission.kube_scheduler import read_pod
from pod_scheduling.ports.extender import Filtered
from pod_scheduling.runtime.settings.admission import VolcanoShape

UNSCHEDULABLE = 2
UNRESOLVABLE = 3
_SCALE = 10
"""Volcano adds scores up as they are, and its own plugins give 0 to 100."""
_NAME = 253
_PENDING, _PIPELINED = 1, 4
"""A task's Status, in every Volcano that tells us of allocations (1.13 and newer)."""

# What every Volcano since 1.7 sends of a task and of a node, and what has come and gone since.
_OF_A_TASK = frozenset({"Resreq", "InitResreq", "LastTransaction", "VolumeReady", "BestEffort"})
_OF_A_NODE = frozenset({"Idle", "Releasing", "Pipelined", "Allocatable", "ImageStates"})
_SINCE_1_8_OF_A_NODE = "Capacity"
_SINCE_1_10_OF_A_TASK = "EvictionOccurred"


@dataclass(frozen=True, slots=True)
class Predicate:
    """May this pod go to that node? `sender` is the shape that the question's own form points to."""

    pod: Mapping[str, Any]
    node: str
    sender: VolcanoShape


@dataclass(frozen=True, slots=True)
class Prioritize:
    """How good are these nodes for this pod?"""

    pod: Mapping[str, Any]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Allocation:
    """A task was allocated to that node within a session, or that was taken back (then `node` may be "").

    `waits`: the task is as if nothing had been tried; a pod that is evicted from its node is not. `pipelined`: it waits
    for what others leave on that node, for the length of the session.
    """

    pod: Mapping[str, Any]
    node: str
    waits: bool
    pipelined: bool


def read_predicate(body: bytes) -> Predicate:
    """Read a question of predicateVerb. Raises BadJsonError."""
    walk = JsonWalk(body)
    found = walk.value()
    walk.end()
    if not isinstance(found, dict):
        raise BadJsonError("the body must be an object with task and node")
    task, node = member(found, "task"), member(found, "node")
    return Predicate(_pod_of(task), _name_of(node, "node"), _sender(task, node))


def read_prioritize(body: bytes) -> Prioritize:
    """Read a question of prioritizeVerb. Raises BadJsonError."""
    walk = JsonWalk(body)
    task: Any = None
    nodes: list[str] | None = None
    for name in walk.members("the body"):
        match name:
            case "task":
                task = walk.value()
            case "nodes":
                nodes = [_name_of(walk.value(), "each of nodes") for _ in walk.items("nodes")]
            case _:
                walk.value()
    walk.end()
    if nodes is None:
        raise BadJsonError("the body must be an object with task and nodes")
    return Prioritize(_pod_of(task), tuple(nodes))


def read_allocation(body: bytes) -> Allocation:
    """Read a call of allocateFuncVerb or deallocateFuncVerb. Raises BadJsonError."""
    walk = JsonWalk(body)
    found = walk.value()
    walk.end()
    if not isinstance(found, dict):
        raise BadJsonError("the body must be an object with task")
    task = member(found, "task")
    pod = _pod_of(task)
    node = member(task, "NodeName") or ""
    if not isinstance(node, str) or len(node) > _NAME:
        raise BadJsonError(f"NodeName must be a text of at most {_NAME} characters")
    status = member(task, "Status")
    return Allocation(pod, node, status == _PENDING, status == _PIPELINED)


def written_allocation(reason: str | None) -> bytes:
    """The answer to both; with a reason the allocation is taken back."""
    return b"{}" if reason is None else written_error(reason)


def written_predicate(asked: Predicate, filtered: Filtered, shape: VolcanoShape) -> bytes:
    """The answer of predicateVerb in that shape; `auto` takes the sender's own where it is known."""
    unresolvable = filtered.unresolvable.get(asked.node)
    reason = unresolvable or filtered.failed.get(asked.node)
    if asked.node in filtered.fitting:
        return b"{}"
    message = reason or f"node {asked.node} was not judged; the log of gpu-admission says why"
    code = UNRESOLVABLE if unresolvable else UNSCHEDULABLE
    return json.dumps(_refusal(message, code, asked.sender if shape is VolcanoShape.AUTO else shape)).encode()


def written_scores(nodes: Sequence[str], scores: Sequence[int]) -> bytes:
    """The answer of prioritizeVerb: 0 to 100 by node, as Volcano's own plugins score."""
    found = {name: float(score) * _SCALE for name, score in zip(nodes, scores, strict=True)}
    return json.dumps({"nodeScore": found}).encode()


def written_error(message: str) -> bytes:
    """The body of an answer with an error status; Volcano itself reads only the status."""
    return json.dumps({"errorMessage": message}).encode()


def _refusal(message: str, code: int, shape: VolcanoShape) -> dict[str, object]:
    match shape:
        case VolcanoShape.AUTO:
            return {"errorMessage": message, "status": message, "code": UNSCHEDULABLE}
        case VolcanoShape.V1_7:
            return {"errorMessage": message}
        case VolcanoShape.V1_8:
            return {"status": [{"Code": code, "Reason": message}]}
        case VolcanoShape.V1_10:
            return {"status": message, "code": code}
        case _:
            assert_never(shape)


def _sender(task: Mapping[str, Any], node: Mapping[str, Any]) -> VolcanoShape:
    """The shape for the sender: only 1.8 and 1.9 cannot read what the others do."""
    is_volcano = task.keys() >= _OF_A_TASK and node.keys() >= _OF_A_NODE
    if is_volcano and _SINCE_1_8_OF_A_NODE in node and _SINCE_1_10_OF_A_TASK not in task:
        return VolcanoShape.V1_8
    return VolcanoShape.AUTO


def _pod_of(task: Any) -> Mapping[str, Any]:
    if not isinstance(task, dict):
        raise BadJsonError("task must be an object, with the pod in Pod")
    return read_pod(member(task, "Pod"), "task.Pod")


def _name_of(node: Any, what: str) -> str:
    if not isinstance(node, dict):
        raise BadJsonError(f"{what} must be an object, with its Name")
    if member(node, "Name") is None:
        inner = member(node, "Node")
        metadata = member(inner, "metadata") if isinstance(inner, dict) else None
        if isinstance(metadata, dict):
            return text_member(metadata, "name", _NAME)
    return text_member(node, "Name", _NAME)
