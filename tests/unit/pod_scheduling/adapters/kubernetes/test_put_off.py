"""Whether a pod's scheduler has given it up since it asked about it: by what it has written there."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.adapters.kubernetes.card_cluster import KubernetesCardCluster
from pod_scheduling.adapters.kubernetes.card_sights import CardSightRules, pod_sight, put_off_of
from pod_scheduling.ports.card_cluster import CardPodSeen
from reservation_core.adapters.kubernetes.api_server.object_watch import ObservedObject
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter
from tests.clusters.card_cluster import card_pod, container

NO_NODE = {
    "reason": "Unschedulable",
    "message": "0/3 nodes are available",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def pod(version: str, status: str | None = None, **more: Any) -> dict[str, Any]:
    """`status` and `more` are of the condition `PodScheduled`; `nominated` is its node."""
    made = card_pod("p", container(gpu=1))
    made["metadata"] |= {"uid": "u", "namespace": "a", "resourceVersion": version}
    nominated = more.pop("nominated", None)
    conditions = [{"type": "Other", "status": "False"}]
    if status is not None:
        conditions.append({"type": "PodScheduled", "status": status, **more})
    made["status"] = {"conditions": conditions} | ({"nominatedNodeName": nominated} if nominated else {})
    return made


def asked(thing: dict[str, Any]) -> CardPodSeen:
    rules = CardSightRules()
    nobody: Any = None
    events: EventWriter = nobody
    return KubernetesCardCluster(nobody, rules, events, "kube-system").asked_of(thing)


def told(thing: dict[str, Any]) -> CardPodSeen:
    sight = pod_sight(ObservedObject("a", "p", "u", thing), CardSightRules())
    assert isinstance(sight, CardPodSeen)
    return sight


def test_what_it_writes_when_it_fails_is_another_number_where_it_is_another_reason() -> None:
    found = put_off_of(pod("1", "False", **NO_NODE))
    assert found is not None
    assert put_off_of(pod("2", "False", **NO_NODE)) == found
    for name in NO_NODE:
        assert put_off_of(pod("2", "False", **{**NO_NODE, name: "other"})) not in (None, found)
    for none in (pod("1"), pod("1", "True", **NO_NODE), pod("1", "False", nominated="n1", **NO_NODE)):
        assert put_off_of(none) is None


def test_as_a_scheduler_sends_it_it_is_as_the_watch_tells_of_it() -> None:
    for thing in (pod("7"), pod("8", "False", **NO_NODE)):
        assert asked(thing) == told(thing)
        assert told(thing).nominated is None
    assert told(pod("8", "False", nominated="n1", **NO_NODE)).nominated == "n1"


def test_only_what_was_written_later_and_is_no_repetition_puts_it_off() -> None:
    fresh, failed = asked(pod("7")), asked(pod("7", "False", **NO_NODE))
    other = {**NO_NODE, "message": "binding rejected"}
    assert told(pod("8", "False", **NO_NODE)).was_put_off_since(fresh)
    assert told(pod("10", "False", **other)).was_put_off_since(failed)
    assert not told(pod("8")).was_put_off_since(fresh)
    assert not told(pod("8", "False", **NO_NODE)).was_put_off_since(failed)
    assert not told(pod("8", "False", nominated="n1", **other)).was_put_off_since(failed)
    assert not told(pod("6", "False", **other)).was_put_off_since(failed)  # news that are late
    for version in ("", "x8", "-1", "1" * 5000):  # no numbers, of which nobody knows
        assert told(pod(version, "False", **other)).was_put_off_since(failed)


nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda each: st.lists(each), max_leaves=4
)


@given(nonsense, nonsense, nonsense)
def test_whatever_stands_there_nothing_is_raised(status: object, conditions: object, version: object) -> None:
    for thing in (
        {"status": status},
        {"status": {"conditions": conditions}, "metadata": {"resourceVersion": version}},
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": conditions}]}},
    ):
        assert asked(thing).was_put_off_since(asked(thing)) is False
