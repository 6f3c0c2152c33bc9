"""What a pod takes, row by row as Kubernetes adds it up (k8s.io/component-helpers/resource)."""

from typing import Any

import pytest

from reservation_core.adapters.kubernetes.pods.pod_requests import host_ports, pod_requests, read_amounts


def asks(
    name: str = "c", limits: dict[str, Any] | None = None, always: bool = False, **requests: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "resources": {"requests": requests, "limits": limits or {}}}
    return {**made, "restartPolicy": "Always"} if always else made


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{"name": "c"}]}, {}),
        ({"containers": [asks(cpu="500m", memory="1Gi"), asks(cpu=2)]}, {"cpu": 2500, "memory": 2**30}),
        # Limits count where nothing is requested of that resource; else the request does.
        ({"containers": [asks(limits={"cpu": "2", "memory": "4Gi"}, cpu="1")]}, {"cpu": 1000, "memory": 2**32}),
        # An init container runs alone, so the most counts …
        ({"containers": [asks(cpu=1)], "initContainers": [asks(cpu=3), asks(cpu=2)]}, {"cpu": 3000}),
        ({"containers": [asks(cpu=4)], "initContainers": [asks(cpu=3)]}, {"cpu": 4000}),
        # … but beside the sidecars that were started before it, and not those after it.
        (
            {"containers": [asks(cpu=1)], "initContainers": [asks(always=True, cpu=2), asks(cpu=3)]},
            {"cpu": 5000},
        ),
        (
            {"containers": [asks(cpu=1)], "initContainers": [asks(cpu=3), asks(always=True, cpu=2)]},
            {"cpu": 3000},
        ),
        (
            {"containers": [asks(cpu=1)], "initContainers": [asks(always=True, cpu=2), asks(always=True, cpu=3)]},
            {"cpu": 6000},
        ),
        # Resource by resource.
        (
            {"containers": [asks(cpu=1, memory="1Gi")], "initContainers": [asks(cpu=2, memory="1")]},
            {"cpu": 2000, "memory": 2**30},
        ),
        # What the pod as a whole asks for goes before the sum, for cpu, memory and huge pages.
        (
            {"containers": [asks(cpu=1, memory="1Gi")], "resources": {"requests": {"cpu": "3"}}},
            {"cpu": 3000, "memory": 2**30},
        ),
        (
            {
                "containers": [asks(**{"hugepages-2Mi": "2Mi", "example.org/x": 1})],
                "resources": {"requests": {"hugepages-2Mi": "4Mi", "example.org/x": "5"}},
            },
            {"hugepages-2Mi": 2**22, "example.org/x": 1},
        ),
        ({"containers": [asks(cpu=1)], "overhead": {"cpu": "250m", "memory": "1Mi"}}, {"cpu": 1250, "memory": 2**20}),
        (
            {"containers": [asks(cpu=1)], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "250m"}},
            {"cpu": 2250},
        ),
        # Rounded up, and nonsense left out.
        ({"containers": [asks(cpu="100u", memory="1m")]}, {"cpu": 1, "memory": 1}),
        ({"containers": [asks(cpu="much", memory=None, pods="")]}, {}),
        ({"containers": None, "initContainers": "x", "overhead": 3, "resources": []}, {}),
        ({}, {}),
    ],
)
def test_what_a_pod_takes(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert pod_requests(spec) == {**expected, "pods": 1}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"allocatedResources": {"cpu": "4"}}, 4000),
        ({"resources": {"requests": {"cpu": "3"}}}, 3000),
        ({"resources": {"requests": {"cpu": "500m"}}, "allocatedResources": {"cpu": "1"}}, 2000),
        ({"resources": None, "allocatedResources": None}, 2000),
    ],
)
def test_a_container_that_is_resized_counts_with_the_most(said: dict[str, Any], expected: int) -> None:
    status = {"containerStatuses": [{"name": "c", **said}]}
    assert pod_requests({"containers": [asks(cpu=2)]}, status)["cpu"] == expected
    sidecar = {"initContainerStatuses": [{"name": "s", **said}]}
    assert pod_requests({"initContainers": [asks("s", always=True, cpu=2)]}, sidecar)["cpu"] == expected


def test_amounts_never_pass_what_a_sum_can_bear() -> None:
    assert read_amounts({"cpu": "9" * 18 + "E"}) == {"cpu": 2**62}


def test_host_ports() -> None:
    spec = {
        "containers": [
            {
                "ports": [
                    {"containerPort": 80},
                    {"hostPort": 80},
                    {"hostPort": 81, "protocol": "UDP", "hostIP": "10.0.0.1"},
                ]
            }
        ],
        "initContainers": [{"ports": [{"hostPort": 82}, {"hostPort": 0}, {"hostPort": "x"}]}],
    }
    assert host_ports(spec) == ("TCP/0.0.0.0/80", "UDP/10.0.0.1/81", "TCP/0.0.0.0/82")
