"""Questions and answers of kube-scheduler's extenders: `k8s.io/kube-scheduler/extender/v1`.

Nodes come as whole objects (`nodeCacheCapable: false`) or by name. Objects go back byte for byte as they came.

A question by name in the very words of kube-scheduler is read in one step. Whatever else comes is walked through, which
takes other letter cases, and knows what to say of a question that can't be read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Any

import msgspec

from gpu_admission.json_walk import BadJsonError, JsonWalk, member, text_member
from pod_scheduling.ports.extender import Binding, Filtered

_NAME = 253
_POD_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MOST_NODES = 100_000
_SCORES = tuple(f"{score}}}," for score in range(11))
"""How the line of a node with such a score ends."""


@dataclass(frozen=True, slots=True)
class NodeObjects:
    """A NodeList as it came: `head` is its text up to its items, `spans` where each is in `text`, by name in order."""

    text: str
    head: str
    names: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """A pod, and the nodes that it may go to: their names, and their objects where these came.

    `names_text` is the JSON in which the names came, where that is known.
    """

    pod: Mapping[str, Any]
    nodes: tuple[str, ...]
    objects: NodeObjects | None = None
    by_name: bool = True
    names_text: bytes | None = field(default=None, compare=False, repr=False)


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=_NAME)]


class _ByName(msgspec.Struct, forbid_unknown_fields=True):
    """ExtenderArgs as Go writes it where nodes are sent by name."""

    pod: msgspec.Raw = msgspec.field(name="Pod")
    node_names: msgspec.Raw = msgspec.field(name="NodeNames")
    nodes: None = msgspec.field(name="Nodes", default=None)


_REMEMBERED = 2**20
"""Bytes; what is larger is read anew each time."""

_by_name = msgspec.json.Decoder(_ByName)
_pod_of = msgspec.json.Decoder(dict[str, Any])
_names_of = msgspec.json.Decoder(Annotated[tuple[_Name, ...], msgspec.Meta(max_length=_MOST_NODES)])


class ArgsReader:
    """Reads the questions of filter and prioritize.

    What came last is remembered: of one pod both are asked in turn, mostly about the same nodes. Then the same pod and
    the same names are given, not others that are equal.
    """

    def __init__(self) -> None:
        self._last: tuple[bytes, Mapping[str, Any], bytes, tuple[str, ...]] = b"", {}, b"[]", ()

    def read(self, body: bytes) -> ExtenderArgs:
        """A question. Raises BadJsonError."""
        pod_text, pod, names_text, names = self._last
        try:
            found = _by_name.decode(body)
            if (came := bytes(found.pod)) != pod_text:
                pod_text, pod = came, _pod_of.decode(came)
            if (came := bytes(found.node_names)) != names_text:
                names_text, names = came, _names_of.decode(came)
        except (ValueError, RecursionError):
            return read_args(body)
        if len(body) <= _REMEMBERED:
            self._last = pod_text, pod, names_text, names
        return ExtenderArgs(read_pod(pod, "Pod"), names, names_text=names_text)


def read_args(body: bytes) -> ExtenderArgs:
    """Read a question of filter or prioritize, whoever wrote it. Raises BadJsonError."""
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
    """A pod as the API server has them; who writes one by hand may leave the uid and the namespace away.

    Then it is known by its name, and in the namespace `default`, as with kubectl: it must not count as another's, nor
    as nobody's. Raises BadJsonError.
    """
    if not isinstance(pod, dict):
        raise BadJsonError(f"{what} must be a pod")
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(pod.get("spec"), dict):
        raise BadJsonError(f"{what} must be a pod, with metadata and spec")
    namespace, uid = (_optional(metadata, word, what) for word in ("namespace", "uid"))
    if namespace and uid:
        return pod
    name = _optional(metadata, "name", what)
    if not (uid or name):
        raise BadJsonError(f"{what}.metadata must have a uid, or a name at least")
    namespace = namespace or "default"
    return {**pod, "metadata": {**metadata, "namespace": namespace, "uid": uid or f"{namespace}/{name}"}}


def _optional(metadata: Mapping[str, Any], name: str, what: str) -> str:
    value = metadata.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _NAME):
        raise BadJsonError(f"{what}.metadata.{name} must be a text of 1 to {_NAME} characters")
    return value or ""


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
    nodes = b"null" if args.objects is None else _kept(args.objects, frozenset(filtered.fitting)).encode()
    return b'{"Nodes":%b,"NodeNames":%b,"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":""}' % (
        nodes, _written_names(args, filtered.fitting), _written(filtered.failed), _written(filtered.unresolvable),
    )  # fmt: skip


def written_filter_error(message: str) -> bytes:
    """ExtenderFilterResult without an answer: the scheduler shows the text, and asks again."""
    told = {"Nodes": None, "NodeNames": None, "FailedNodes": None, "FailedAndUnresolvableNodes": None, "Error": message}
    return json.dumps(told).encode()


def written_priorities(nodes: Sequence[str], scores: Sequence[int]) -> bytes:
    """HostPriorityList."""
    if not nodes:
        return b"[]"
    parts = [""] * (2 * len(nodes))
    parts[::2] = _hosts(tuple(nodes))
    parts[1::2] = map(_SCORES.__getitem__, scores)
    return f"[{''.join(parts)[:-1]}]".encode()


def written_binding(error: str = "") -> bytes:
    """ExtenderBindingResult; without an error it is bound."""
    return json.dumps({"Error": error}).encode()


@lru_cache(maxsize=4)
def _hosts(nodes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_host, nodes))


@lru_cache(maxsize=2 * 8192)
def _host(name: str) -> str:
    """A node's line in a list of priorities, up to its score."""
    return f'{{"Host":{quoted(name)},"Score":'


def _written_names(args: ExtenderArgs, fitting: tuple[str, ...]) -> bytes:
    if not args.by_name:
        return b"null"
    # Those that fit are some of those that were asked about, in their order: if they are as many, they are the same.
    if args.names_text is not None and len(fitting) == len(args.nodes):
        return args.names_text
    return _written(fitting)


def _written(said: Sequence[str] | Mapping[str, str]) -> bytes:
    try:
        return msgspec.json.encode(said)
    except UnicodeEncodeError:  # half a pair of surrogates: no node is called so, but who asks has it back
        return json.dumps(said).encode()


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
    return NodeObjects(walk.text, "".join(f"{key}," for key in head), tuple(names), tuple(spans))


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


def _kept(objects: NodeObjects, fitting: frozenset[str]) -> str:
    kept = (
        objects.text[begins:ends]
        for name, (begins, ends) in zip(objects.names, objects.spans, strict=True)
        if name in fitting
    )
    return f'{{{objects.head}"items":[{",".join(kept)}]}}'
