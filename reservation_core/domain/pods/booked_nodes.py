"""Restrict a pod on a booking to nodes with the booking's GPUs, within its own affinity.

Kubernetes takes one name in a requirement on a node's name, so each of the pod's alternatives is repeated for each
node. The change is idempotent, and repeating it with fewer nodes leaves fewer.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reservation_core.domain.pods.node_choice_terms import Requirement
from reservation_core.domain.pods.pod_changes import Path, PodChanges
from reservation_core.domain.pods.reviews import items, members

MOST_NODES = 64
"""How many nodes of a booking are named: a pod needs one."""

_HOST = "kubernetes.io/hostname"
_PATH = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_MOST_WRITTEN = 256 * 1024
"""Characters of all alternatives as JSON, so that the API server can store the pod."""
_MOST_NAMED = 8


def restrict_to_nodes(changes: PodChanges, nodes: Sequence[str], booking: str) -> str | None:
    """Let the pod onto these nodes only (at least one). Returns why that is impossible; then nothing is changed.

    `booking` is its name in reasons, such as `booking bkg-1`.
    """
    room = f"{booking} has room on {_listed(nodes)}"
    spec = members(changes.pod.get("spec"))
    if (preset := spec.get("nodeName")) and preset not in nodes:
        return f"spec.nodeName is {_shown(preset)}, and {room}. Leave out nodeName: the scheduler sets it."
    if (host := members(spec.get("nodeSelector")).get(_HOST)) and host not in nodes:
        return f"spec.nodeSelector names the node {_shown(host)}, and {room}. Leave {_HOST} out, or name such a node."
    terms = _required_terms(spec)
    if not terms:
        _write(changes, [{"matchFields": [_is(node)]} for node in nodes])
        return None
    pinned = [pinned_term for term in terms for pinned_term in _pin(term, nodes)]
    if any(map(_matches_any, terms)) and not any(map(_matches_any, pinned)):
        return f"the pod's required node affinity names other nodes, and {room}. Leave it out, or name such a node."
    if len(pinned) > len(terms) and len(json.dumps(pinned)) > _MOST_WRITTEN:
        return (
            f"the pod's required node affinity is too long to be written for each of {len(nodes)} nodes, and {room}."
            " Ask for less in it."
        )
    if pinned != terms:
        _write(changes, pinned)
    return None


def _required_terms(spec: Mapping[str, Any]) -> list[Any]:
    value: Any = spec
    for step in _PATH:
        value = members(value).get(step)
    return list(items(value))


def _matches_any(term: object) -> bool:
    """A term without requirements matches no node."""
    return bool(items(members(term).get("matchFields")) or items(members(term).get("matchExpressions")))


def _pin(term: Any, nodes: Sequence[str]) -> list[Any]:
    """The term once for each node that it allows; unchanged if it names one already or matches none."""
    if not _matches_any(term):
        return [term]
    fields = items(term.get("matchFields"))
    requirements = [_requirement(field) for field in map(members, fields)]
    allowed = [node for node in nodes if all(requirement.holds(node, {}) for requirement in requirements)]
    if allowed and any(item.operator == "In" and len(item.values) == 1 for item in requirements):
        return [term]
    return [{**term, "matchFields": [*fields, _is(node)]} for node in allowed]


def _requirement(field: Mapping[str, Any]) -> Requirement:
    values = tuple(str(value) for value in items(field.get("values")))
    return Requirement(str(field.get("key")), str(field.get("operator")), values, field=True)


def _is(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def _write(changes: PodChanges, terms: list[Any]) -> None:
    path: Path = ("spec",)
    parent = members(changes.pod.get("spec"))
    for position, step in enumerate(_PATH[:-1], start=1):
        path = (*path, step)
        child = parent.get(step)
        if not isinstance(child, Mapping):
            value: Any = terms
            for name in reversed(_PATH[position:]):
                value = {name: value}
            changes.add(path, value)
            return
        parent = child
    changes.add((*path, _PATH[-1]), terms)


def _listed(nodes: Sequence[str]) -> str:
    more = len(nodes) - _MOST_NAMED
    return ", ".join(nodes[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _shown(name: object) -> str:
    text = str(name)
    return repr(text if len(text) <= 64 else text[:64] + "…")
