"""A pod on a booking is let onto nodes with the booking's cards only, and there within what it asks itself.

Kubernetes takes one name in a requirement on a node's name, so each of the pod's alternatives becomes one for each
node. Doing it twice is doing it once, and fewer nodes the second time leave fewer.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reservation_core.domain.pods.node_choice_terms import Requirement
from reservation_core.domain.pods.pod_changes import Path, PodChanges
from reservation_core.domain.pods.reviews import items, members

MOST_NODES = 64
"""So many nodes of a booking are said: a pod needs one."""

_HOST = "kubernetes.io/hostname"
_WAY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_MOST_WRITTEN = 256 * 1024
"""Characters of all alternatives as JSON: a pod that names many would become one that no API server stores."""
_MOST_NAMED = 8


def put_on(changes: PodChanges, nodes: Sequence[str], booking: str) -> str | None:
    """Let the pod onto these nodes only (at least one). Returns why that can't be; then nothing is changed.

    `booking` is what reasons call it, such as `booking bkg-1`.
    """
    room = f"{booking} has room on {_listed(nodes)}"
    spec = members(changes.pod.get("spec"))
    if (preset := spec.get("nodeName")) and preset not in nodes:
        return f"spec.nodeName is {_shown(preset)}, and {room}. Leave nodeName away: the scheduler sets it."
    if (host := members(spec.get("nodeSelector")).get(_HOST)) and host not in nodes:
        return f"spec.nodeSelector names the node {_shown(host)}, and {room}. Leave {_HOST} away, or name such a node."
    asked = _asked(spec)
    if not asked:
        _write(changes, [{"matchFields": [_is(node)]} for node in nodes])
        return None
    pinned = [node for term in asked for node in _on(term, nodes)]
    if any(map(_matches_any, asked)) and not any(map(_matches_any, pinned)):
        return f"the pod's required node affinity names other nodes, and {room}. Leave it away, or name such a node."
    if len(pinned) > len(asked) and len(json.dumps(pinned)) > _MOST_WRITTEN:
        return (
            f"the pod's required node affinity is too long to be written for each of {len(nodes)} nodes, and {room}."
            " Ask for less in it."
        )
    if pinned != asked:
        _write(changes, pinned)
    return None


def _asked(spec: Mapping[str, Any]) -> list[Any]:
    found: Any = spec
    for step in _WAY:
        found = members(found).get(step)
    return list(items(found))


def _matches_any(term: object) -> bool:
    """A term without requirements matches no node."""
    return bool(items(members(term).get("matchFields")) or items(members(term).get("matchExpressions")))


def _on(term: Any, nodes: Sequence[str]) -> list[Any]:
    """The term for each node that it leaves; itself, where it names one already or matches none."""
    if not _matches_any(term):
        return [term]
    fields = items(term.get("matchFields"))
    asked = [_requirement(field) for field in map(members, fields)]
    left = [node for node in nodes if all(requirement.holds(node, {}) for requirement in asked)]
    if left and any(requirement.operator == "In" and len(requirement.values) == 1 for requirement in asked):
        return [term]
    return [{**term, "matchFields": [*fields, _is(node)]} for node in left]


def _requirement(field: Mapping[str, Any]) -> Requirement:
    values = tuple(str(value) for value in items(field.get("values")))
    return Requirement(str(field.get("key")), str(field.get("operator")), values, field=True)


def _is(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def _write(changes: PodChanges, terms: list[Any]) -> None:
    path: Path = ("spec",)
    found = members(changes.pod.get("spec"))
    for position, step in enumerate(_WAY[:-1], start=1):
        path = (*path, step)
        inner = found.get(step)
        if not isinstance(inner, Mapping):
            value: Any = terms
            for name in reversed(_WAY[position:]):
                value = {name: value}
            changes.add(path, value)
            return
        found = inner
    changes.add((*path, _WAY[-1]), terms)


def _listed(nodes: Sequence[str]) -> str:
    more = len(nodes) - _MOST_NAMED
    return ", ".join(nodes[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _shown(name: object) -> str:
    text = str(name)
    return repr(text if len(text) <= 64 else text[:64] + "…")
