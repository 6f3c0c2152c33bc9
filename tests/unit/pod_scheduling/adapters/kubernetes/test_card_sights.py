"""From the API's objects to what an extender decides on: nodes, pods wherever they are, quotas, and nonsense."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.adapters.kubernetes.card_sights import CardSightRules, card_pod, node_sight, pod_sight, quota_sight
from pod_scheduling.adapters.kubernetes.namespace_sights import namespace_sight
from pod_scheduling.domain.extender.asked_cards import AskedCards, Part
from pod_scheduling.domain.extender.card_footprints import Taken
from pod_scheduling.domain.extender.cards_in_use import CardNode
from pod_scheduling.domain.extender.model_usage import Model
from pod_scheduling.ports.card_cluster import CardNodeSeen, CardPodSeen, QuotasGone, QuotasSeen
from pod_scheduling.ports.pod_binding import NamespaceSeen, NodeGone, PodGone
from reservation_core.adapters.kubernetes.api_server.object_watch import ObservedObject
from tests.clusters.card_cluster import CORE, MEMORY, WHOLE, container
from tests.clusters.card_cluster import card_pod as made_pod

RULES = CardSightRules()


def seen(thing: dict[str, Any], *, gone: bool = False, namespace: str = "team-a") -> ObservedObject:
    return ObservedObject(namespace, "thing", "uid-1", thing, gone)


def node(capacity: dict[str, str], annotations: dict[str, str] | None = None, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels, "annotations": annotations or {}},
        "status": {"capacity": capacity, "allocatable": {"cpu": "7500m", "memory": "64Gi"}},
    }


def test_a_node_is_its_cards_model_and_pool() -> None:
    thing = node({CORE: "400", MEMORY: "1280"}, **{"nvidia.com/gpu.product": "Tesla-T4", "gpu-pool": "public"})
    assert node_sight(seen(thing), RULES) == CardNodeSeen(
        CardNode("thing", Model("Tesla-T4", "t4"), "public", 0, 4, 320, 7500, 65536)
    )
    whole = node_sight(seen(node({WHOLE: "8", "nvidia.com/mig-1g.10gb": "2"})), RULES)
    assert isinstance(whole, CardNodeSeen)
    assert (whole.node.plugin_cards, whole.node.share_cards, whole.node.model) == (10, 0, Model("", ""))
    assert node_sight(seen({}, gone=True), RULES) == NodeGone("thing")


def test_links_count_where_they_can_be_read() -> None:
    def links(text: str) -> object:
        found = node_sight(seen(node({WHOLE: "2"}, {"gpu-dev/gpu-links": text})), RULES)
        assert isinstance(found, CardNodeSeen)
        return found.node.links

    assert links("X NV4;NV4 X") is not None
    assert links("nonsense") is None


def on_node(thing: dict[str, Any], phase: str = "Running", **annotations: str) -> dict[str, Any]:
    thing["metadata"] |= {"uid": "uid-1", "namespace": "team-a", "resourceVersion": "7", "annotations": annotations}
    thing["spec"]["nodeName"] = "node-a"
    thing["status"] = {"phase": phase}
    return thing


def test_a_pod_waits_or_is_on_a_node_with_what_stands_on_it() -> None:
    waiting = pod_sight(seen(made_pod("p", container(core=30, memory=2))), RULES)
    assert isinstance(waiting, CardPodSeen)
    assert (waiting.node, waiting.footprint, waiting.marked) == (None, None, False)
    assert waiting.pod.asked == AskedCards(parts=(Part(0, 1, 300, 2),), milli=300)
    thing = on_node(made_pod("p", container(core=30, memory=2)), **{"gpu-dev/cards": "3=300/2"})
    bound = pod_sight(seen(thing), RULES)
    assert isinstance(bound, CardPodSeen)
    assert (bound.node, bound.footprint, bound.marked, bound.version) == ("node-a", (Taken(3, 300, 2),), True, "7")
    unmarked = pod_sight(seen(on_node(made_pod("p", container(core=30)))), RULES)
    assert isinstance(unmarked, CardPodSeen)
    assert (unmarked.footprint, unmarked.marked) == (None, False)


def test_marks_on_a_pod_that_waits_count_for_nothing() -> None:
    thing = made_pod("p", container(core=30))
    thing["metadata"]["annotations"] = {"gpu-dev/cards": "0=300", "tencent.com/predicate-time": "1"}
    found = pod_sight(seen(thing), RULES)
    assert isinstance(found, CardPodSeen)
    assert (found.footprint, found.marked) == (None, False)


@pytest.mark.parametrize(("phase", "running", "there"), [
    ("Running", False, True), ("Pending", False, True), ("Succeeded", False, False), ("Failed", False, False),
    ("Failed", True, True),
])  # fmt: skip
def test_who_has_ended_is_gone_and_who_still_runs_is_not(phase: str, running: bool, there: bool) -> None:
    thing = on_node(made_pod("p", container(gpu=1)), phase)
    if running:
        thing["status"]["containerStatuses"] = [{"name": "main", "state": {"running": {}}}]
    assert isinstance(pod_sight(seen(thing), RULES), CardPodSeen) is there
    assert isinstance(pod_sight(seen(thing, gone=True), RULES), PodGone)


def test_pods_of_our_jobs_and_of_scheduling_maps_have_cards_that_nobody_asked_a_plugin_for() -> None:
    ours = on_node(made_pod("job-ab12-1-0", container()), **{"gpu-dev/gpu-indices": "2,0"})
    ours["metadata"] |= {"namespace": "gpu-dev", "name": "job-ab12-1-0"}
    ours["metadata"]["labels"] = {
        "gpu-dev/managed": "true", "gpu-dev/reservation": "job-ab12", "gpu-dev/attempt": "1", "gpu-dev/rank": "0",
    }  # fmt: skip
    mapped = on_node(made_pod("p", container(), schedulerName="gpu-scheduler"), **{"gpu-dev/map-devices": "0,2"})
    for thing in (ours, mapped):
        found = pod_sight(seen(thing, namespace=thing["metadata"]["namespace"]), RULES)
        assert isinstance(found, CardPodSeen)
        assert found.footprint == (Taken(0, 1000), Taken(2, 1000))
        assert found.pod.asked.milli == 2000
    by_uuid = on_node(
        made_pod("p", container(), schedulerName="gpu-scheduler"), **{"gpu-dev/map-devices": "GPU-a,GPU-b"}
    )
    found = pod_sight(seen(by_uuid), RULES)
    assert isinstance(found, CardPodSeen)
    assert (found.footprint, found.pod.asked.plugin) == (None, 2)
    greedy = on_node(made_pod("p", container(gpu=4), schedulerName="gpu-scheduler"), **{"gpu-dev/map-devices": "0"})
    found = pod_sight(seen(greedy), RULES)
    assert isinstance(found, CardPodSeen)
    assert (found.footprint, found.pod.asked.plugin) == (None, 4)
    endless = {"gpu-dev/map-devices": ",".join(map(str, range(9999)))}
    found = pod_sight(seen(on_node(made_pod("p", container(), schedulerName="gpu-scheduler"), **endless)), RULES)
    assert isinstance(found, CardPodSeen)
    assert (found.footprint, found.pod.asked.plugin) == (None, 1024)
    anybody = on_node(made_pod("p", container()), **{"gpu-dev/map-devices": "0,2", "gpu-dev/gpu-indices": "1"})
    found = pod_sight(seen(anybody), RULES)
    assert isinstance(found, CardPodSeen)
    assert found.pod.asked.none


def test_what_no_node_has_is_little_enough_to_be_added_up() -> None:
    huge = {"name": "c", "resources": {"requests": {"cpu": "9E", "memory": "9E"}, "limits": {WHOLE: "1"}}}
    found = card_pod(made_pod("p", *[huge] * 3), RULES)
    large = node_sight(seen({"status": {"allocatable": {"cpu": "9E", "memory": "9E"}}}), RULES)
    assert isinstance(large, CardNodeSeen)
    for amount in (found.cpu_milli, found.memory_mib, large.node.cpu_milli, large.node.memory_mib):
        assert 2**39 < amount < 2**63 // 10_000


def test_quotas_and_namespaces() -> None:
    assert quota_sight(seen({"data": {"gpu_quota": "{}"}}), RULES) == QuotasSeen("uid-1", "gpu_quota", "{}")
    assert quota_sight(seen({"data": {"other": "{}"}}), RULES) == QuotasSeen("uid-1", "gpu_quota", None)
    assert quota_sight(seen({}, gone=True), RULES) == QuotasGone()
    assert namespace_sight(seen({})) == NamespaceSeen("thing", enforced=True)
    assert namespace_sight(seen({}, gone=True)) == NamespaceSeen("thing", enforced=False)


KEYS = st.sampled_from(
    ["labels", "annotations", "capacity", "allocatable", "containers", "initContainers", "nodeName", "resources",
     "limits", "phase", "gpu-dev/cards", "gpu_quota", CORE, WHOLE, "cpu"]
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["100", "1Gi", "9" * 40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(ANYTHING, ANYTHING, ANYTHING)
def test_whatever_an_object_holds_nothing_is_raised(metadata: object, spec: object, status: object) -> None:
    thing = {"metadata": metadata, "spec": spec, "status": status, "data": spec}
    for read in (node_sight, pod_sight, quota_sight):
        read(seen(thing), RULES)
    namespace_sight(seen(thing))
    card_pod(thing, RULES)
