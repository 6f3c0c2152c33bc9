"""What kube-scheduler asks its extenders and reads as their answers: `k8s.io/kube-scheduler/extender/v1`.

Nodes come as whole objects (`nodeCacheCapable: false`) or by name. Objects go back byte for byte as they came.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from gpu_admission.json_walk import BadJsonError, JsonWalk, member, text_member
from reservation_core.ports.extender import Binding, Filtered

_NAME = 253
_POD_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MOST_NODES = 100_000


@dataclass(frozen=True, slots=True)
class NodeObjects:
    """A NodeList as it came: `head` is its text up to its items, `spans` where each is in `text`, by name in order."""

    text: str
    head: str
    names: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod, and the nodes that it may go to: their names, and their objects where these came."""

    pod: Mapping[str, Any]
    nodes: tuple[str, ...]
    objects: NodeObjects | None = None
    by_name: bool = True


def read_args(body: bytes) -> ExtenderArgs:
    """The question of filter and prioritize. Raises BadJsonError."""
    walk = JsonWalk(body)
    pod: Any = None
    names: Any = None
    objects: NodeObjects | None = None
    for name in walk.members("the body"):
        match name:
            case "pod":
                pod = walk.value()
            case "nodenames":
                names = walk.value()
            case "nodes":
                objects = _node_objects(walk)
            case _:
                walk.value()
    walk.end()
    if names is None and objects is None:
        raise BadJsonError("send the candidates as Nodes, or as NodeNames")
    if names is not None:
        names = _names(names)
    return ExtenderArgs(
        read_pod(pod, "Pod"),
        objects.names if names is None and objects is not None else names,
        objects,
        names is not None,
    )


def read_pod(pod: Any, what: str) -> Mapping[str, Any]:
    """A pod that has what every pod has. Raises BadJsonError."""
    if not isinstance(pod, dict):
        raise BadJsonError(f"{what} must be a pod")
    if not isinstance(pod.get("metadata"), dict) or not isinstance(pod.get("spec"), dict):
        raise BadJsonError(f"{what} must be a pod, with metadata and spec")
    return pod


def read_binding(body: bytes) -> Binding:
    """ExtenderBindingArgs. Raises BadJsonError."""
    walk = JsonWalk(body)
    found = walk.value()
    walk.end()
    if not isinstance(found, dict):
        raise BadJsonError("the body must be an object")
    return Binding(
        namespace=_object_name(found, "PodNamespace", 63, _NAMESPACE),
        name=_object_name(found, "PodName", _NAME, _POD_NAME),
        uid=text_member(found, "PodUID", _NAME),
        node=text_member(found, "Node", _NAME),
    )


def written_filter(args: ExtenderArgs, filtered: Filtered) -> bytes:
    """ExtenderFilterResult."""
    names = json.dumps(filtered.fitting) if args.by_name else "null"
    failed, unresolvable = json.dumps(dict(filtered.failed)), json.dumps(dict(filtered.unresolvable))
    tail = f',"NodeNames":{names},"FailedNodes":{failed},"FailedAndUnresolvableNodes":{unresolvable},"Error":""}}'
    return f'{{"Nodes":{_kept(args.objects, frozenset(filtered.fitting))}{tail}'.encode()


def written_filter_error(message: str) -> bytes:
    """ExtenderFilterResult of a question that can't be answered: the scheduler shows the text, and asks again."""
    told = {"Nodes": None, "NodeNames": None, "FailedNodes": None, "FailedAndUnresolvableNodes": None, "Error": message}
    return json.dumps(told).encode()


def written_priorities(nodes: Sequence[str], scores: Sequence[int]) -> bytes:
    """HostPriorityList."""
    each = (f'{{"Host":{quoted(name)},"Score":{int(score)}}}' for name, score in zip(nodes, scores, strict=True))
    return f"[{','.join(each)}]".encode()


def written_binding(error: str = "") -> bytes:
    """ExtenderBindingResult; without an error it is bound."""
    return json.dumps({"Error": error}).encode()


def _node_objects(walk: JsonWalk) -> NodeObjects | None:
    if walk.is_null():
        walk.value()
        return None
    head: list[str] = []
    names: list[str] = []
    spans: list[tuple[int, int]] = []
    for name in walk.members("Nodes"):
        if name != "items":
            _, begins, ends = walk.span()
            head.append(f"{quoted(name)}:{walk.text[begins:ends]}")
            continue
        names.clear()
        spans.clear()
        for _ in walk.items("Nodes.items"):
            node, begins, ends = walk.span()
            names.append(_name_of(node))
            spans.append((begins, ends))
    _bounded(names)
    return NodeObjects(walk.text, "".join(f"{each}," for each in head), tuple(names), tuple(spans))


def _object_name(found: Mapping[str, Any], name: str, longest: int, allowed: re.Pattern[str]) -> str:
    """A name that may stand in a path of the API server: no other object is ever meant by it."""
    value = text_member(found, name, longest)
    if allowed.fullmatch(value) is None:
        raise BadJsonError(f"{name} must be a name as Kubernetes has them: small letters, digits and dashes")
    return value


def _name_of(node: Any) -> str:
    metadata = member(node, "metadata") if isinstance(node, dict) else None
    if not isinstance(metadata, dict):
        raise BadJsonError("each of Nodes.items must be a node, with metadata")
    try:
        return text_member(metadata, "name", _NAME)
    except BadJsonError as problem:
        raise BadJsonError(f"of each of Nodes.items, metadata.{problem}") from None


def _names(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list):
        raise BadJsonError("NodeNames must be a list of names")
    _bounded(found)
    for name in found:
        if not isinstance(name, str) or not 0 < len(name) <= _NAME:
            raise BadJsonError(f"each of NodeNames must be a text of 1 to {_NAME} characters")
    return tuple(found)


def _bounded(nodes: Sequence[Any]) -> None:
    if len(nodes) > _MOST_NODES:
        raise BadJsonError(f"no more than {_MOST_NODES} nodes can be asked about at once")


def _kept(objects: NodeObjects | None, fitting: frozenset[str]) -> str:
    if objects is None:
        return "null"
    kept = (
        objects.text[begins:ends]
        for name, (begins, ends) in zip(objects.names, objects.spans, strict=True)
        if name in fitting
    )
    return f'{{{objects.head}"items":[{",".join(kept)}]}}'
