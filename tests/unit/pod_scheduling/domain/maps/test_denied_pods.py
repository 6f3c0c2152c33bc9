"""Pods with a scheduling map that are denied, and why."""

from dataclasses import replace

import pytest

from pod_scheduling.domain.maps.scheduling_map import MAP_ANNOTATION
from tests.clusters.pod_strategies import Json
from tests.unit.pod_scheduling.domain.maps.injected_pods import (
    GPU_LIMIT,
    RULES,
    SEED,
    container,
    denied,
    devices,
    patched,
    pod,
)


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
