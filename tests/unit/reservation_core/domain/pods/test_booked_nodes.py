"""Pods on bookings stay on booked nodes: for any pod, what is left is what it asked itself, of the booked nodes."""

import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.pods.booked_nodes import restrict_to_nodes
from reservation_core.domain.pods.pod_changes import PodChanges

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CLUSTER = {
    f"node{number}": {"zone": "ab"[number % 2], "kubernetes.io/hostname": f"node{number}"} for number in range(5)
}


def named(*nodes: str) -> list[dict[str, Any]]:
    return [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]


def pod(terms: Any = None, **spec: Any) -> dict[str, Any]:
    affinity = {} if terms is None else {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "m"}], **affinity, **spec}}


def terms_of(thing: Any) -> Any:
    return thing["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def changed(thing: Any, *nodes: str) -> dict[str, Any]:
    """The pod as the patch makes it, as it goes over the wire."""
    changes = PodChanges(thing)
    assert restrict_to_nodes(changes, nodes, "booking bkg-1") is None
    patch = json.loads(json.dumps([operation.as_json() for operation in changes.operations]))
    kept: dict[str, Any] = jsonpatch.apply_patch(thing, patch)
    assert kept == changes.pod
    return kept


def refusal(thing: Any, *nodes: str) -> str:
    changes = PodChanges(thing)
    reason = restrict_to_nodes(changes, nodes, "booking bkg-1")
    assert reason is not None
    assert changes.operations == ()
    return reason


ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
NOT_2 = {"key": "metadata.name", "operator": "NotIn", "values": ["node2"]}
IN = {name: named(name)[0]["matchFields"][0] for name in CLUSTER}


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (None, named("node1", "node2")),
        ([], named("node1", "node2")),
        ([{"matchExpressions": [ZONE]}], [
            {"matchExpressions": [ZONE], "matchFields": [IN["node1"]]},
            {"matchExpressions": [ZONE], "matchFields": [IN["node2"]]},
        ]),
        ([{"matchExpressions": None, "matchFields": [NOT_2]}], [
            {"matchExpressions": None, "matchFields": [NOT_2, IN["node1"]]},
        ]),
        # What names a booked node already stays as it is; what names another goes; what matches nothing stays so.
        (named("node2"), named("node2")),
        (named("node3", "node1"), named("node1")),
        ([{}, {"matchExpressions": []}], [{}, {"matchExpressions": []}]),
        ([{}, *named("node1")], [{}, *named("node1")]),
    ],
)  # fmt: skip
def test_each_alternative_of_the_pod_is_of_booked_nodes(asked: Any, kept: Any) -> None:
    assert terms_of(changed(pod(asked), "node1", "node2")) == kept


@pytest.mark.parametrize(
    "spec",
    [
        {}, {"affinity": None}, {"affinity": {}}, {"affinity": {"podAffinity": {"x": 1}}},
        {"affinity": {"nodeAffinity": None}}, {"affinity": {"nodeAffinity": {"preferred": [1]}}},
        {"affinity": {"nodeAffinity": {REQUIRED: None}}}, {"affinity": {"nodeAffinity": {REQUIRED: {}}}},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": None}}}},
    ],
)  # fmt: skip
def test_what_is_missing_is_made_and_what_is_beside_stays(spec: Any) -> None:
    kept = changed(pod(**spec), "node1")
    assert terms_of(kept) == named("node1")
    affinity = spec.get("affinity") or {}
    assert kept["spec"]["affinity"].get("podAffinity") == affinity.get("podAffinity")
    assert kept["spec"]["affinity"]["nodeAffinity"].get("preferred") == (affinity.get("nodeAffinity") or {}).get(
        "preferred"
    )


@pytest.mark.parametrize(
    ("thing", "told"),
    [
        (pod(nodeName="node4"), "spec.nodeName is 'node4'"),
        (pod(nodeSelector={"kubernetes.io/hostname": "node4"}), "names the node 'node4'"),
        (pod(named("node3", "node4")), "names other nodes"),
        (pod([{}, *named("node3")]), "names other nodes"),
    ],
)
def test_who_asks_for_another_node_is_told_which_are_booked(thing: Any, told: str) -> None:
    reason = refusal(thing, "node1", "node2")
    assert told in reason
    assert "booking bkg-1 has room on node1, node2" in reason


def test_a_booked_node_may_be_named() -> None:
    for spec in ({"nodeName": "node2"}, {"nodeName": ""}, {"nodeSelector": {"kubernetes.io/hostname": "node2"}}):
        assert terms_of(changed(pod(**spec), "node1", "node2")) == named("node1", "node2")


def test_what_would_become_too_long_is_refused_and_reasons_stay_short() -> None:
    nodes = [f"node{number:02}" for number in range(64)]
    reason = refusal(pod([{"matchExpressions": [{**ZONE, "values": ["x" * 5000]}]}]), *nodes)
    assert "too long" in reason
    assert "node07 and 56 more" in reason
    assert len(refusal(pod(nodeName="n" * 100_000), *nodes)) < 400
    # Of one node it grows by no more than the name.
    changed(pod([{"matchExpressions": [{**ZONE, "values": ["x" * 300_000]}]}]), "node1")


def holds(requirement: Any, has: str | None) -> bool:
    values = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return has in values
        case "NotIn":
            return has not in values
        case "Exists":
            return has is not None
        case _:
            return has is None


def goes_to(thing: Any) -> set[str]:
    """The nodes that Kubernetes lets the pod onto, written down as plainly as can be."""
    spec = thing["spec"]
    selector = spec.get("nodeSelector") or {}
    found = {name for name, labels in CLUSTER.items() if selector.items() <= labels.items()}
    if spec.get("nodeName"):
        found &= {spec["nodeName"]}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    if not required or not required.get("nodeSelectorTerms"):
        return found
    left = set()
    for term in required["nodeSelectorTerms"]:
        fields, labels = term.get("matchFields") or [], term.get("matchExpressions") or []
        for name in found if fields or labels else ():
            if all(holds(field, name) for field in fields) and all(
                holds(label, CLUSTER[name].get(label["key"])) for label in labels
            ):
                left.add(name)
    return left


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


_NODE = st.sampled_from(list(CLUSTER))
_LABEL = st.builds(
    lambda key, operator, value: {"key": key, "operator": operator, "values": [value] if "In" in operator else []},
    st.sampled_from(["zone", "gone"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.sampled_from("ab"),
)  # fmt: skip
_FIELD = st.builds(
    lambda operator, node: {"key": "metadata.name", "operator": operator, "values": [node]},
    st.sampled_from(["In", "NotIn"]), _NODE,
)  # fmt: skip
_TERM = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": _maybe(st.lists(_LABEL, max_size=2)),
        "matchFields": _maybe(st.lists(_FIELD, max_size=2)),
    },
)
_ALTERNATIVES = st.fixed_dictionaries({"nodeSelectorTerms": st.lists(_TERM, min_size=1, max_size=3)})
_NODE_AFFINITY = st.fixed_dictionaries({}, optional={REQUIRED: _maybe(_ALTERNATIVES)})
_AFFINITY = st.fixed_dictionaries({}, optional={"podAffinity": st.just({}), "nodeAffinity": _maybe(_NODE_AFFINITY)})
_SPEC = st.fixed_dictionaries(
    {},
    optional={
        "affinity": _maybe(_AFFINITY),
        "nodeSelector": _maybe(st.dictionaries(st.just("zone"), st.sampled_from("ab"), max_size=1)),
        "nodeName": _NODE | st.just(""),
    },
)
_BOOKED = st.lists(_NODE, min_size=1, max_size=4, unique=True)


@given(spec=_SPEC, nodes=_BOOKED, fewer=_BOOKED)
def test_what_is_left_is_what_the_pod_asks_of_the_booked_nodes(spec: Any, nodes: list[str], fewer: list[str]) -> None:
    thing = pod(**spec)
    before = goes_to(thing)
    reason = restrict_to_nodes(PodChanges(thing), nodes, "b")
    if reason is not None:
        assert not before & set(nodes)
        return
    kept = changed(thing, *nodes)
    assert goes_to(kept) == before & set(nodes)
    again = PodChanges(kept)
    assert restrict_to_nodes(again, nodes, "b") is None
    assert again.operations == ()
    # Asked again when the booking has moved, nothing is let by that either answer forbids.
    moved = PodChanges(kept)
    if restrict_to_nodes(moved, fewer, "b") is None:
        assert goes_to(moved.pod) == before & set(nodes) & set(fewer)
