"""The patches of pods with a scheduling map: every row of the rules."""

from dataclasses import replace
from typing import Any

import pytest

from pod_scheduling.domain.maps.remembered_maps import KnownMaps
from pod_scheduling.domain.maps.scheduling_map import INDEX_ANNOTATION, MAP_ANNOTATION, SchedulingMapError, map_digest
from reservation_core.domain.pods.reviews import Patched
from tests.unit.pod_scheduling.domain.maps.injected_pods import (
    ORDER,
    RULES,
    SEED,
    container,
    denied,
    devices,
    marks,
    patched,
    pod,
    reviewed,
)


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
