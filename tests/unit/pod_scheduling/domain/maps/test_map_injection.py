"""What becomes of pods with a scheduling map: every row of the rules, and any pod at all."""

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from pod_scheduling.domain.maps.remembered_maps import KnownMaps
from pod_scheduling.domain.maps.scheduling_map import INDEX_ANNOTATION, MAP_ANNOTATION, SchedulingMapError, map_digest
from reservation_core.domain.pods.reviews import Denied, Operation, Patched, PodReview, Requester, Untouched, Verdict
from tests.examples import examples
from tests.pod_strategies import Json, pods

SEED = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n5=node5:none\n"
RULES = InjectionRules()
ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}


def devices(value: str) -> Json:
    return {"name": "CUDA_VISIBLE_DEVICES", "value": value}


def pod(name: str = "check-0", *, annotations: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """A pod with the seed's map; `spec` beside one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {MAP_ANNOTATION: SEED} if annotations is None else dict(annotations)},
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "main", "image": "busybox"}], **spec},
    }


def container(**members: Any) -> Json:
    return {"name": "main", "image": "busybox", **members}


def reviewed(given: Json, rules: InjectionRules = RULES) -> Verdict:
    return injection(PodReview(Operation.CREATE, given, requester=Requester("oidc:ann")), rules)


def patched(given: Json, rules: InjectionRules = RULES) -> Json:
    """The pod as the API server's own kind of patching makes it; it must be what the verdict says."""
    before = copy.deepcopy(given)
    verdict = reviewed(given, rules)
    assert isinstance(verdict, Patched), verdict
    assert given == before
    operations = [operation.as_json() for operation in verdict.operations]
    result: Json = jsonpatch.apply_patch(given, json.loads(json.dumps(operations)))
    assert result == verdict.pod
    return result


def denied(given: Json, rules: InjectionRules = RULES) -> str:
    verdict = reviewed(given, rules)
    assert isinstance(verdict, Denied), verdict
    return verdict.reason


def marks(of: Json) -> dict[str, str]:
    return {name: value for name, value in of["metadata"]["annotations"].items() if name.startswith("gpu-dev/")}


# --- Written patches.


@pytest.mark.parametrize(
    ("index", "node", "value"),
    [
        (0, "node1", "0,1"),
        (1, "node2", "2"),
        (2, "node3", "0,1,2"),
        (3, "node4", "3"),
        (4, "node4", "3"),
        (5, "node5", ""),
    ],
)
def test_the_seeds_pods(index: int, node: str, value: str) -> None:
    result = patched(pod(f"check-{index}"))
    assert result["spec"]["containers"] == [container(env=[devices(value), ORDER])]
    assert marks(result) == {
        "gpu-dev/map-index": str(index),
        "gpu-dev/map-node": node,
        "gpu-dev/map-devices": value,
        "gpu-dev/map-digest": map_digest(SEED),
        "gpu-dev/map-owner": "oidc:ann",
    }
    verdict = reviewed(pod(f"check-{index}"))
    assert isinstance(verdict, Patched)
    assert verdict.log == (f"Injecting CUDA_VISIBLE_DEVICES={value} for pod check-{index} (index {index})",)
    assert verdict.warnings == ()


@pytest.mark.parametrize(
    ("env", "after"),
    [
        (None, [devices("0,1"), ORDER]),
        ([], [devices("0,1"), ORDER]),
        # First, so that $(CUDA_VISIBLE_DEVICES) means it in those that follow.
        (
            [{"name": "A", "value": "$(CUDA_VISIBLE_DEVICES)"}],
            [devices("0,1"), ORDER, {"name": "A", "value": "$(CUDA_VISIBLE_DEVICES)"}],
        ),
        ([{"name": "A"}, devices("0,1")], [ORDER, {"name": "A"}, devices("0,1")]),
        ([ORDER], [devices("0,1"), ORDER]),
        ([devices("0,1"), devices("0,1")], [ORDER, devices("0,1"), devices("0,1")]),
        (
            [{"name": "cuda_visible_devices", "value": "9"}],
            [devices("0,1"), ORDER, {"name": "cuda_visible_devices", "value": "9"}],
        ),
        ([{**devices("0,1"), "valueFrom": None}], [ORDER, {**devices("0,1"), "valueFrom": None}]),
    ],
)
def test_what_becomes_of_an_environment(env: Any, after: Any) -> None:
    assert patched(pod(containers=[container(env=env)]))["spec"]["containers"] == [container(env=after)]


def test_every_container_and_init_container_is_told() -> None:
    given = pod(
        containers=[container(), {"image": "nameless"}, container(envFrom=[{"secretRef": {"name": "s"}}])],
        initContainers=[container(restartPolicy="Always"), container(env=[ORDER])],
    )
    spec = patched(given)["spec"]
    for listed_container in [*spec["containers"], *spec["initContainers"]]:
        assert listed_container["env"] == [devices("0,1"), ORDER]
    assert spec["containers"][2]["envFrom"] == [{"secretRef": {"name": "s"}}]


def test_a_variable_that_comes_from_elsewhere_is_replaced_with_a_warning() -> None:
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    given = pod(containers=[container(env=[{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": source}, ORDER])])
    assert patched(given)["spec"]["containers"][0]["env"] == [devices("0,1"), ORDER]
    verdict = reviewed(given)
    assert isinstance(verdict, Patched)
    assert verdict.warnings == (
        "CUDA_VISIBLE_DEVICES of container 'main' had valueFrom; it is now '0,1', as the map says",
    )


def test_another_value_is_overwritten_where_that_is_set() -> None:
    given = pod(containers=[container(env=[devices("7"), {"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"}])])
    rules = replace(RULES, override_devices=True)
    assert patched(given, rules)["spec"]["containers"][0]["env"] == [devices("0,1"), ORDER]
    verdict = reviewed(given, rules)
    assert isinstance(verdict, Patched)
    assert [warning.split(" of ")[0] for warning in verdict.warnings] == ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"]


def test_no_cards_is_an_empty_variable_whether_it_is_written_or_left_out() -> None:
    """The API server leaves an empty value out of what it shows."""
    given = pod("check-5", containers=[container(env=[{"name": "CUDA_VISIBLE_DEVICES"}, ORDER])])
    assert patched(given)["spec"]["containers"][0]["env"] == [{"name": "CUDA_VISIBLE_DEVICES"}, ORDER]


def test_forged_marks_are_overwritten_and_others_stay() -> None:
    forged = {MAP_ANNOTATION: SEED, "gpu-dev/map-node": "mine", "gpu-dev/map-digest": "0" * 64, "a.b/c~d": "e"}
    forged["gpu-dev/map-owner"] = "oidc:bob"
    after = patched(pod(annotations=forged))["metadata"]["annotations"]
    assert after["gpu-dev/map-node"] == "node1"
    assert after["gpu-dev/map-digest"] == map_digest(SEED)
    assert after["gpu-dev/map-owner"] == "oidc:ann"
    assert after["a.b/c~d"] == "e"
    assert after[MAP_ANNOTATION] == SEED


def test_the_index_may_be_told() -> None:
    result = patched(pod("any", annotations={MAP_ANNOTATION: SEED, INDEX_ANNOTATION: "3"}))
    assert marks(result)["gpu-dev/map-node"] == "node4"


def test_a_statefulsets_pod_has_its_ordinal_and_a_replicasets_none() -> None:
    given = pod("check-4")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "check", "uid": "1", "controller": True}
    given["metadata"] |= {"generateName": "check-", "ownerReferences": [owner]}
    assert marks(patched(given))["gpu-dev/map-index"] == "4"
    for other in ({"kind": "ReplicaSet"}, {"apiVersion": "example.org/v1"}):
        given["metadata"]["ownerReferences"] = [{**owner, **other}]
        assert "no index" in denied(given)
    given["metadata"]["ownerReferences"] = [{**owner, "controller": False}]
    del given["metadata"]["generateName"]
    assert marks(patched(given))["gpu-dev/map-index"] == "4"


def test_a_name_that_is_chosen_later_is_no_index() -> None:
    given = pod("")
    given["metadata"] |= {"generateName": "check-0"}
    assert "no index" in denied(given)


def test_a_hostile_name_cannot_write_lines_into_the_log() -> None:
    given = pod("x\nInjecting-0")
    verdict = reviewed(given)
    assert isinstance(verdict, Patched)
    assert "\n" not in verdict.log[0]


# --- Denied pods.

GPU_LIMIT = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"containers": [container(**GPU_LIMIT)]}, "container 'main' requests nvidia.com/gpu"),
        ({"containers": [container(resources={"requests": {"amd.com/gpu": 2}})]}, "requests amd.com/gpu"),
        ({"initContainers": [container(**GPU_LIMIT)]}, "init container 'main' requests nvidia.com/gpu"),
        ({"containers": [{}, GPU_LIMIT]}, "container 1 requests nvidia.com/gpu"),
        (GPU_LIMIT, "the pod requests nvidia.com/gpu"),
        ({"resources": {"requests": {"nvidia.com/gpu": "1"}}}, "the pod requests nvidia.com/gpu"),
        ({"resourceClaims": [{"name": "gpu"}]}, "can't have resourceClaims"),
        ({"containers": [container(resources={"claims": [{"name": "gpu"}]})]}, "has resource claims"),
        (
            {"containers": [container(resources={"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}})]},
            "requests deviceclass.resource.kubernetes.io/gpu",
        ),
        ({"nodeName": "node2"}, "spec.nodeName is 'node2', and the map says 'node1' for index 0"),
        (
            {"containers": [container(env=[devices("0")])]},
            "CUDA_VISIBLE_DEVICES of container 'main' is '0', and the map says '0,1'",
        ),
        ({"containers": [container(env=[devices("0,1"), devices("2")])]}, "is '2', and the map says '0,1'"),
        ({"containers": [container(env=[{"name": "CUDA_VISIBLE_DEVICES"}])]}, "is '', and the map says '0,1'"),
        ({"containers": [container(env=[devices("$(X)")])]}, "is '$(X)', and the map says '0,1'"),
        ({"initContainers": [container(env=[devices("1")])]}, "CUDA_VISIBLE_DEVICES of init container 'main' is '1'"),
        (
            {"containers": [container(env=[{"name": "CUDA_DEVICE_ORDER", "value": "FASTEST_FIRST"}])]},
            "CUDA_DEVICE_ORDER of container 'main' is 'FASTEST_FIRST', and the map says 'PCI_BUS_ID'",
        ),
        ({"containers": {"0": {}}}, "spec.containers is not a list of containers"),
        ({"containers": ["main"]}, "spec.containers is not a list of containers"),
        ({"initContainers": "main"}, "spec.initContainers is not a list of containers"),
        ({"containers": [container(env={"CUDA_VISIBLE_DEVICES": "0"})]}, "the env of container 'main' is not a list"),
        ({"containers": [container(env=["CUDA_VISIBLE_DEVICES=0"])]}, "the env of container 'main' is not a list"),
    ],
)
def test_what_a_pod_with_a_map_may_not_have(spec: Json, told: str) -> None:
    assert told in denied(pod(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container(resources={"limits": {"nvidia.com/gpu": "0"}, "requests": {"cpu": "1"}})]},
        {"containers": [container(resources={"limits": None, "claims": None})]},
        {"resourceClaims": []},
        {"resourceClaims": None},
        {"nodeName": "node1"},
        {"nodeName": ""},
        {"resources": {"limits": {"cpu": "1"}}},
    ],
)
def test_what_it_may_have(spec: Json) -> None:
    patched(pod(**spec))


def test_which_resources_are_gpus_is_a_setting() -> None:
    given = pod(containers=[container(resources={"limits": {"example.org/gpu": "1"}})])
    patched(given)
    assert "requests example.org/gpu" in denied(given, replace(RULES, gpu_resources=("example.org/gpu",)))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("check-0", "0=node1:0\n1=node2:x", "gpu-scheduling-map: line 2: a device is 'x'"),
        ("check-0", "", "gpu-scheduling-map: the map is empty"),
        ("check-9", SEED, "gpu-scheduling-map: the map has no entry for index 9; add a line 9=NODE:DEVICES"),
        ("check", SEED, "gpu-scheduling-map: the pod has no index"),
    ],
)
def test_a_map_or_an_index_that_can_not_be_used(name: str, text: str, told: str) -> None:
    assert denied(pod(name, annotations={MAP_ANNOTATION: text})).startswith(told)


# --- Pods in scope.


def test_a_pod_of_another_scheduler_is_let_be() -> None:
    given = pod(schedulerName="default-scheduler", nodeName="elsewhere", containers=[container(**GPU_LIMIT)])
    verdict = reviewed(given)
    assert isinstance(verdict, Untouched)
    assert "is not read" in verdict.warnings[0]
    assert reviewed(pod(schedulerName="default-scheduler", annotations={})) == Untouched()
    assert isinstance(reviewed(pod(), replace(RULES, scheduler_name="mine")), Untouched)
    patched(pod(schedulerName="mine"), replace(RULES, scheduler_name="mine"))


def test_a_pod_of_ours_without_a_map_is_told_that_it_will_wait() -> None:
    verdict = reviewed(pod(annotations={}))
    assert isinstance(verdict, Untouched)
    assert "will stay Pending" in verdict.warnings[0]
    bare = pod()
    del bare["metadata"]["annotations"]
    assert reviewed(bare) == verdict


def test_forged_marks_on_a_pod_without_a_map_are_removed() -> None:
    forged = {"gpu-dev/map-node": "node1", "gpu-dev/map-digest": "0" * 64, "kept": "yes"}
    assert patched(pod(annotations=forged))["metadata"]["annotations"] == {"kept": "yes"}
    verdict = reviewed(pod(annotations=forged))
    assert isinstance(verdict, Patched)
    assert "will stay Pending" in verdict.warnings[0]
    assert verdict.log == ()


@pytest.mark.parametrize("operation", [Operation.DELETE, Operation.CONNECT])
def test_what_else_is_done_to_pods_is_let_be(operation: Operation) -> None:
    assert injection(PodReview(operation, None, pod()), RULES) == Untouched()


def test_what_is_created_below_a_pod_is_let_be() -> None:
    assert injection(PodReview(Operation.CREATE, {"kind": "Binding"}, subresource="binding"), RULES) == Untouched()


def test_a_review_without_its_pod_is_denied() -> None:
    assert isinstance(injection(PodReview(Operation.CREATE, None), RULES), Denied)
    assert isinstance(injection(PodReview(Operation.UPDATE, pod(), None), RULES), Denied)


# --- Changes to a pod that is there.


def updated(old: Json, new: Json, subresource: str = "") -> Verdict:
    return injection(PodReview(Operation.UPDATE, new, old, subresource), RULES)


@pytest.mark.parametrize(
    "name",
    [
        MAP_ANNOTATION,
        INDEX_ANNOTATION,
        "gpu-dev/map-index",
        "gpu-dev/map-node",
        "gpu-dev/map-devices",
        "gpu-dev/map-digest",
        "gpu-dev/map-owner",
    ],
)
def test_what_was_read_stays(name: str) -> None:
    old = patched(pod())
    for value in ("other", None):
        new = copy.deepcopy(old)
        new["metadata"]["annotations"][name] = value
        if value is None:
            del new["metadata"]["annotations"][name]
        verdict = updated(old, new)
        if new == old or old["metadata"]["annotations"].get(name) == value:
            assert verdict == Untouched()
        else:
            assert isinstance(verdict, Denied)
            assert name in verdict.reason
            assert isinstance(updated(old, new, "status"), Denied)


def test_a_pod_without_a_map_gets_none_later() -> None:
    """Else its own CUDA_VISIBLE_DEVICES would be one that nobody has compared with the map."""
    old = pod(annotations={}, containers=[container(env=[devices("0,1"), ORDER])])
    verdict = updated(old, patched(pod(containers=[container(env=[devices("0,1"), ORDER])])))
    assert isinstance(verdict, Denied)


def test_other_changes_are_let_be() -> None:
    old = patched(pod())
    new = copy.deepcopy(old)
    new["metadata"]["annotations"]["mine"] = "yes"
    new["metadata"]["labels"] = {"a": "b"}
    new["spec"]["containers"][0]["image"] = "other"
    assert updated(old, new) == Untouched()
    del new["metadata"]["annotations"]
    new["spec"]["schedulerName"] = old["spec"]["schedulerName"] = "default-scheduler"
    assert updated(old, new) == Untouched()


def test_an_ephemeral_container_sees_what_the_pods_own_see() -> None:
    old = patched(pod())
    old["spec"]["ephemeralContainers"] = [{"name": "earlier", "image": "busybox"}]
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"].append({"name": "debug", "image": "busybox", "env": [{"name": "A"}]})
    verdict = updated(old, new, "ephemeralcontainers")
    assert isinstance(verdict, Patched)
    result = jsonpatch.apply_patch(new, [operation.as_json() for operation in verdict.operations])
    assert result == verdict.pod
    assert result["spec"]["ephemeralContainers"] == [
        {"name": "earlier", "image": "busybox"},
        {"name": "debug", "image": "busybox", "env": [devices("0,1"), ORDER, {"name": "A"}]},
    ]
    assert verdict.log == ("Injecting CUDA_VISIBLE_DEVICES=0,1 for pod check-0 (ephemeral container 'debug')",)
    again = updated(old, dict(verdict.pod), "ephemeralcontainers")
    assert again == Untouched()
    new["spec"]["ephemeralContainers"][1]["env"] = [devices("0,1,2,3")]
    assert isinstance(updated(old, new, "ephemeralcontainers"), Denied)
    new["metadata"]["annotations"]["gpu-dev/map-devices"] = "0,1,2,3"
    assert isinstance(updated(old, new, "ephemeralcontainers"), Denied)


def test_an_ephemeral_container_of_a_pod_that_was_never_read_is_denied() -> None:
    old = pod()
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    verdict = updated(old, new, "ephemeralcontainers")
    assert isinstance(verdict, Denied)
    assert "never read" in verdict.reason
    old["metadata"]["annotations"] = new["metadata"]["annotations"] = {}
    assert updated(old, new, "ephemeralcontainers") == Untouched()


# --- Any pod.

MAPS = st.sampled_from([SEED, "0=node1:0,1", "0=node1:none 1=node1:1 2=other:0", "nonsense"])


def visible(of: Mapping[str, Any]) -> set[str]:
    """The values that a kubelet gives to the containers: of equal names the last counts."""
    spec = of["spec"]
    found = set()
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        last = {variable["name"]: variable for variable in container["env"]}
        assert last["CUDA_DEVICE_ORDER"].get("value") == "PCI_BUS_ID"
        assert last["CUDA_VISIBLE_DEVICES"].get("valueFrom") is None
        found.add(last["CUDA_VISIBLE_DEVICES"].get("value") or "")
    return found


@examples(400)
@given(pods(maps=MAPS), st.booleans())
def test_any_pod_is_patched_whole_or_denied_and_twice_is_once(given: Json, override: bool) -> None:
    rules = replace(RULES, override_devices=override)
    before = copy.deepcopy(given)
    verdict = reviewed(given, rules)
    assert given == before
    if not isinstance(verdict, Patched):
        assert isinstance(verdict, Denied) or given["spec"]["schedulerName"] != "gpu-scheduler" or visible(given)
        return
    result = jsonpatch.apply_patch(
        given, json.loads(json.dumps([operation.as_json() for operation in verdict.operations]))
    )
    assert result == verdict.pod
    assert visible(result) == {marks(result)["gpu-dev/map-devices"]}
    assert marks(result)["gpu-dev/map-digest"] == map_digest(given["metadata"]["annotations"][MAP_ANNOTATION])
    assert reviewed(result, rules) == Untouched()
    assert updated(result, result) == Untouched()


@examples(200)
@given(pods())
def test_any_pod_without_a_map_keeps_all_but_forged_marks(given: Json) -> None:
    verdict = reviewed(given)
    assert not isinstance(verdict, Denied)
    if isinstance(verdict, Patched):
        result = jsonpatch.apply_patch(given, [operation.as_json() for operation in verdict.operations])
        assert result == verdict.pod
        assert marks(result) == {}
        assert isinstance(reviewed(result), Untouched)


# --- Maps that were read before.


def test_known_maps_are_read_once_and_the_oldest_are_forgotten() -> None:
    known = KnownMaps(most=6)
    first = known.read("0=a:0 1=a:1")
    assert known.read("0=a:0 1=a:1") is first
    second = known.read("0=b:0")
    assert known.read("0=a:0 1=a:1") is first
    known.read("0=c:0")  # too much in all: what was not asked for longest goes
    assert known.read("0=a:0 1=a:1") is first
    assert known.read("0=b:0") is not second
    with pytest.raises(SchedulingMapError):
        known.read("nonsense")
    large = known.read(SEED)  # more than all: kept alone
    assert known.read(SEED) is large
    assert known.read("0=a:0 1=a:1") is not first


def test_what_is_kept_of_maps_counts_their_devices() -> None:
    known = KnownMaps(most=100)
    wide = known.read("0=a:" + ",".join(map(str, range(90))))
    known.read("0=b:" + ",".join(map(str, range(20))))
    assert known.read("0=a:" + ",".join(map(str, range(90)))) is not wide
