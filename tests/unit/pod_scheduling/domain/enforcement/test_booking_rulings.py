"""Permission for GPUs in an enforced namespace: owners, needs, and every verdict, forged marks included."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.enforcement.booking_rulings import (
    EnforcementRules,
    Place,
    Silence,
    Standing,
    Unbooked,
    enforcement,
)
from pod_scheduling.domain.enforcement.pod_gpus import GpuNeed, need_of
from pod_scheduling.domain.enforcement.pod_owners import OwnerRules, owner_of
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules, read_nodes
from reservation_core.domain.cards.gpu_types import TypeNames
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Requester, Untouched, Verdict

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
END = NOW + timedelta(hours=2)
BOOKED = Standing(schedulable=True, reason="Booking bkg-1 holds 2 h100.", until=END, booking_id="bkg-1")
NOT_BOOKED = Standing(schedulable=False, reason="ada has no booking of h100 now.")
FORGED = {
    "gpu-dev/terminate-at": "2099-01-01T00:00:00Z",
    "gpu-dev/booking": "bkg-9",
    "gpu-dev/owner": "root",
    "gpu-dev/preemptible": "false",
}
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
LABELS = ("nvidia.com/gpu.product", "gpu-dev/gpu-type")


def pod(gpus: int = 1, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": str(gpus)}
    container: dict[str, Any] = {"name": "main", "image": "i"}
    if gpus:
        container["resources"] = {"limits": amounts, "requests": {**amounts, "cpu": "1"}}
    metadata: dict[str, Any] = {"name": "p", **({"annotations": annotations} if annotations is not None else {})}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def verdict(
    thing: dict[str, Any],
    standing: Standing | None = BOOKED,
    *,
    owner: str | None = "ada",
    need: GpuNeed | None = None,
    **rules: Any,
) -> Verdict:
    review = PodReview(Operation.CREATE, thing, namespace="lab", requester=Requester("ada"))
    asked = need_of(thing, GPUS, LABELS, "gpu-scheduler") if need is None else need
    return enforcement(review, asked, owner, standing, EnforcementRules(**rules), NOW)


def annotations(answer: Verdict) -> dict[str, str]:
    assert isinstance(answer, Patched), answer
    return dict(answer.pod["metadata"].get("annotations") or {})


def test_a_booked_pod_gets_its_end_and_loses_what_it_brought() -> None:
    for brought in (None, {}, FORGED, {"mine": "stays", **FORGED}):
        answer = annotations(verdict(pod(annotations=brought)))
        expected = {"gpu-dev/owner": "ada", "gpu-dev/terminate-at": "2026-11-21T14:00:00Z", "gpu-dev/booking": "bkg-1"}
        assert answer == ({"mine": "stays"} if brought and "mine" in brought else {}) | expected


def test_without_an_end_none_is_written() -> None:
    answer = annotations(
        verdict(pod(annotations=FORGED), Standing(schedulable=True, reason="No booking is asked for."))
    )
    assert answer == {"gpu-dev/owner": "ada"}


def test_a_pod_without_gpus_is_let_by_and_loses_its_forged_marks() -> None:
    assert verdict(pod(0), None, owner=None) == Untouched()
    assert annotations(verdict(pod(0, FORGED), None, owner=None)) == {}


@pytest.mark.parametrize("standing", [NOT_BOOKED, Standing(schedulable=True, reason="over", until=NOW)])
def test_who_has_not_booked_or_not_any_more(standing: Standing) -> None:
    denied = verdict(pod(), standing)
    assert isinstance(denied, Denied)
    assert standing.reason in denied.reason
    assert "gpu-dev book" in denied.reason
    preemptible = verdict(pod(annotations=FORGED), standing, unbooked=Unbooked.PREEMPTIBLE)
    assert annotations(preemptible) == {"gpu-dev/owner": "ada", "gpu-dev/preemptible": "true"}
    bare = verdict(pod(annotations=FORGED), standing, unbooked=Unbooked.WITHOUT_GPUS)
    assert isinstance(bare, Patched)
    (container,) = bare.pod["spec"]["containers"]
    assert container["resources"] == {"limits": {}, "requests": {"cpu": "1"}}
    assert container["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert annotations(bare) == {}


def test_a_map_can_not_go_without_its_cards() -> None:
    answer = verdict(pod(0), NOT_BOOKED, need=GpuNeed(2, by_map=True), unbooked=Unbooked.WITHOUT_GPUS)
    assert isinstance(answer, Denied)


def test_nobody_is_no_owner() -> None:
    answer = verdict(pod(), owner=None)
    assert isinstance(answer, Denied)
    assert "map the namespace" in answer.reason


OLD = Standing(schedulable=True, reason="then", until=END, booking_id="bkg-1", fresh=False)


@pytest.mark.parametrize(
    ("standing", "silence", "admitted"),
    [
        (None, Silence.FAIL_OPEN, True), (None, Silence.FAIL_CLOSED, False), (None, Silence.LAST_KNOWN, False),
        (OLD, Silence.FAIL_OPEN, True), (OLD, Silence.FAIL_CLOSED, False), (OLD, Silence.LAST_KNOWN, True),
        (Standing(schedulable=True, reason="over", until=NOW, fresh=False), Silence.LAST_KNOWN, False),
        (Standing(schedulable=False, reason="then", fresh=False), Silence.LAST_KNOWN, False),
        (BOOKED, Silence.FAIL_CLOSED, True), (NOT_BOOKED, Silence.FAIL_OPEN, False),
    ],
)  # fmt: skip
def test_while_the_service_is_silent(standing: Standing | None, silence: Silence, admitted: bool) -> None:
    answer = verdict(pod(), standing, silence=silence)
    assert isinstance(answer, Patched if admitted else Denied)
    if admitted and silence is Silence.LAST_KNOWN:
        assert annotations(answer)["gpu-dev/terminate-at"] == "2026-11-21T14:00:00Z"
    if isinstance(answer, Patched) and (standing is None or silence is Silence.FAIL_OPEN):
        assert answer.warnings


ON_NODES = replace(BOOKED, nodes=("node1", "node3"))


def names(answer: Verdict) -> list[str] | None:
    """The nodes that the pod is let onto."""
    assert isinstance(answer, Patched), answer
    affinity = answer.pod["spec"].get("affinity")
    if affinity is None:
        return None
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [term["matchFields"][-1]["values"][0] for term in terms]


def test_a_pod_on_a_booking_is_let_onto_its_nodes() -> None:
    answer = verdict(pod(), ON_NODES)
    assert names(answer) == ["node1", "node3"]
    assert annotations(answer)["gpu-dev/booking"] == "bkg-1"
    # A map is the scheduler's to follow, which holds the pod's affinity against the node that the map means.
    assert names(verdict(pod(0), ON_NODES, need=GpuNeed(2, by_map=True))) == ["node1", "node3"]
    assert names(verdict(pod(), ON_NODES, place=Place.ANYWHERE)) is None
    assert names(verdict(pod(), BOOKED)) is None
    # What was last heard counts here, too; who is let in unasked goes anywhere.
    assert names(verdict(pod(), replace(ON_NODES, fresh=False))) == ["node1", "node3"]
    assert names(verdict(pod(), replace(ON_NODES, fresh=False), silence=Silence.FAIL_OPEN)) is None
    assert names(verdict(pod(), replace(ON_NODES, schedulable=False), unbooked=Unbooked.PREEMPTIBLE)) is None
    assert verdict(pod(0), ON_NODES) == Untouched()


def test_a_pod_that_is_there_is_not_moved() -> None:
    review = PodReview(Operation.UPDATE, pod(), pod(), namespace="lab")
    assert enforcement(review, GpuNeed(1), "ada", ON_NODES, EnforcementRules(), NOW) == Untouched()


def test_a_pod_that_asks_for_another_node_is_refused_with_the_booked_ones() -> None:
    for spec in ({"nodeName": "node4"}, {"nodeSelector": {"kubernetes.io/hostname": "node4"}}):
        for unbooked in Unbooked:
            answer = verdict(pod(**spec), ON_NODES, unbooked=unbooked)
            assert isinstance(answer, Denied)
            assert "booking bkg-1 has room on node1, node3" in answer.reason
        assert not isinstance(verdict(pod(**spec), ON_NODES, place=Place.ANYWHERE), Denied)


def test_where_no_node_of_the_booking_has_room_it_is_as_if_nothing_were_booked() -> None:
    nowhere = replace(BOOKED, nodes=())
    denied = verdict(pod(2), nowhere)
    assert isinstance(denied, Denied)
    assert "booking bkg-1 has 2 unused on none" in denied.reason
    preemptible = verdict(pod(2), nowhere, unbooked=Unbooked.PREEMPTIBLE)
    assert annotations(preemptible) == {"gpu-dev/owner": "ada", "gpu-dev/preemptible": "true"}
    assert annotations(verdict(pod(2), nowhere, place=Place.ANYWHERE))["gpu-dev/booking"] == "bkg-1"


@pytest.mark.parametrize("name", sorted(FORGED))
def test_marks_of_a_pod_that_is_there_stay(name: str) -> None:
    old = pod(annotations={name: "a"})
    for changed in ({name: "b"}, {}):
        review = PodReview(Operation.UPDATE, pod(annotations=changed), old, namespace="lab")
        assert isinstance(enforcement(review, GpuNeed(1), "ada", BOOKED, EnforcementRules(), NOW), Denied)
    review = PodReview(Operation.UPDATE, pod(annotations={name: "a", "other": "x"}), old, namespace="lab")
    assert enforcement(review, GpuNeed(1), "ada", BOOKED, EnforcementRules(), NOW) == Untouched()


ENV = st.none() | st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["A", "NVIDIA_VISIBLE_DEVICES"]), "value": st.sampled_from("ab")}),
    max_size=3,
)


@given(
    gpus=st.integers(0, 3),
    brought=st.none() | st.dictionaries(st.sampled_from([*FORGED, "mine"]), st.sampled_from("ab"), max_size=4),
    env=ENV,
    standing=st.sampled_from([None, BOOKED, NOT_BOOKED, OLD, ON_NODES, replace(BOOKED, nodes=())]),
    unbooked=st.sampled_from(list(Unbooked)),
    silence=st.sampled_from(list(Silence)),
)
def test_twice_is_once(
    gpus: int, brought: dict[str, str] | None, env: Any, standing: Standing | None, unbooked: Unbooked, silence: Silence
) -> None:
    thing = pod(gpus, brought)
    if env is not None:
        thing["spec"]["containers"][0]["env"] = env
    first = verdict(thing, standing, unbooked=unbooked, silence=silence)
    if isinstance(first, Patched):
        assert not isinstance(verdict(dict(first.pod), standing, unbooked=unbooked, silence=silence), Patched | Denied)


@pytest.mark.parametrize(
    ("username", "rules", "owner"),
    [
        ("ada", OwnerRules(), "ada"),
        ("oidc:ada", OwnerRules(prefixes=("oidc:",)), "ada"),
        ("ada", OwnerRules(prefixes=("oidc:",)), None),
        ("oidc:", OwnerRules(prefixes=("oidc:",)), None),
        ("arn:aws:iam::1:user/ada", OwnerRules(users={"arn:aws:iam::1:user/ada": "ada"}), "ada"),
        ("system:serviceaccount:kube-system:statefulset-controller", OwnerRules(namespaces={"lab": "grace"}), "grace"),
        ("system:serviceaccount:kube-system:statefulset-controller", OwnerRules(), None),
        ("system:serviceaccount:lab:robot", OwnerRules(users={"system:serviceaccount:lab:robot": "bob"}), "bob"),
        ("system:admin", OwnerRules(), None),
        ("", OwnerRules(namespaces={"lab": "grace"}), "grace"),
        ("ada", OwnerRules(namespaces={"lab": "grace"}), "ada"),
    ],
)
def test_whose_a_pod_is(username: str, rules: OwnerRules, owner: str | None) -> None:
    assert owner_of(Requester(username), "lab", rules) == owner


def affinity(*values: str) -> dict[str, Any]:
    expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def sidecar(gpus: int, **more: Any) -> dict[str, Any]:
    return {"name": "s", "resources": {"limits": {"amd.com/gpu": str(gpus)}}, **more}


@pytest.mark.parametrize(
    ("thing", "need"),
    [
        (pod(0), GpuNeed(0)),
        (pod(2), GpuNeed(2)),
        (pod(1, initContainers=[sidecar(3)]), GpuNeed(3)),
        (pod(1, initContainers=[sidecar(2, restartPolicy="Always"), sidecar(1)]), GpuNeed(3)),
        (pod(1, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}), GpuNeed(1, "h100")),
        (pod(1, nodeSelector={"gpu-dev/gpu-type": "t4"}), GpuNeed(1, "t4")),
        (pod(1, affinity=affinity("Tesla-T4")), GpuNeed(1, "t4")),
        (pod(1, affinity=affinity("Tesla-T4", "NVIDIA-H100-80GB-HBM3")), GpuNeed(1)),
        (pod(0, {"gpu-dev/map-devices": "0,1"}, schedulerName="gpu-scheduler"), GpuNeed(2, by_map=True)),
        (pod(0, {"gpu-dev/map-devices": ""}, schedulerName="gpu-scheduler"), GpuNeed(0, by_map=True)),
        (pod(0, containers=[{"name": "m", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "2"}}}]), GpuNeed(2)),
        (pod(0, containers=[{"name": "m", "resources": {"limits": {"nvidia.com/gpu.shared": "1"}}}]), GpuNeed(1)),
        # A note that nobody but the pod's maker wrote does not hide what it asks for.
        (pod(2, {"gpu-dev/map-devices": ""}), GpuNeed(2)),
    ],
)
def test_what_a_pod_needs(thing: dict[str, Any], need: GpuNeed) -> None:
    assert need_of(thing, GPUS, LABELS, "gpu-scheduler") == need


@pytest.mark.parametrize("said", ["NVIDIA-Weird-Card", "nvidia_weird card"])
def test_a_pods_type_is_called_as_administrators_call_it(said: str) -> None:
    words = TypeNames({"nvidia weird-card": "h100", "tesla-t4": "NOT A TYPE"})
    selecting = pod(1, nodeSelector={"nvidia.com/gpu.product": said})
    assert need_of(selecting, GPUS, LABELS, "gpu-scheduler", words) == GpuNeed(1, "h100")
    mapped = pod(0, {"gpu-dev/map-devices": "0"}, schedulerName="gpu-scheduler", affinity=affinity(said))
    assert need_of(mapped, GPUS, LABELS, "gpu-scheduler", words) == GpuNeed(1, "h100", by_map=True)
    other = pod(1, nodeSelector={"nvidia.com/gpu.product": "Tesla-T4"})
    assert need_of(other, GPUS, LABELS, "gpu-scheduler", words) == GpuNeed(1, "t4")


@pytest.mark.parametrize("said", ["NVIDIA-H100-80GB-HBM3", "nvidia-weird-card", "t4", "h100-nvl", "mig.card_2"])
def test_a_pods_type_is_that_of_a_node_with_the_same_label(said: str) -> None:
    labels = {"nvidia.com/gpu.product": said}
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"capacity": {"nvidia.com/gpu": "1"}}}
    (report,) = read_nodes([node], [], NodeRules())
    need = need_of(pod(1, nodeSelector=labels), GPUS, LABELS, "gpu-scheduler")
    assert need.gpu_type == report.gpus[0].gpu_type
