"""Cards by a device plugin, pods bound by name: the ledger counts, the kubelet picks, foreign users make it less."""

from collections.abc import Iterator

import pytest

from tests.e2e.systems.kubernetes_system import KubernetesSystem, kubernetes_system
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import eventually_sync

RESOURCE = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def system(
    api_server: ApiServer, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubernetesSystem]:
    folder = tmp_path_factory.mktemp("kubernetes-device-plugin")
    how = {"GPU_DEV_GPU__ATTACH": "device-plugin", "GPU_DEV_GPU__PIN": "nodeName"}
    amd = {"amd.com/gpu.product-name": "AMD-Instinct-MI300X"}
    nodes = [NodeSpec("node1"), NodeSpec("node2"), NodeSpec("node3", resource="amd.com/gpu", labels=amd)]
    with kubernetes_system(api_server, module_database_url, folder, nodes, **how) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _left_as_it_was(system: KubernetesSystem) -> Iterator[None]:
    yield
    system.left_as_it_was()


def test_a_pod_asks_for_cards_and_is_told_none(system: KubernetesSystem) -> None:
    gate = system.gate()
    job = system.submit(
        f'echo "cards: ${{CUDA_VISIBLE_DEVICES-none}}"; until [ -e "{gate}" ]; do sleep 0.05; done', gpus=3
    )
    running = system.reaches(job, "running")
    [pod] = system.pods(job)
    container = pod["spec"]["containers"][0]
    assert container["resources"]["limits"][RESOURCE] == container["resources"]["requests"][RESOURCE] == "3"
    assert pod["spec"]["nodeName"] == running["allocations"][0]["node"]
    gate.touch()
    system.reaches(job, "succeeded")
    assert system.log(job) == "cards: none\n"
    system.comes_to_rest(job)


def test_a_pod_asks_by_the_resource_that_its_node_has(system: KubernetesSystem) -> None:
    job = system.submit("true", gpus=4, gpu_type="mi300x")
    assert system.reaches(job, "succeeded")["allocations"][0]["node"] == "node3"
    gate = system.gate()
    jobs = [
        system.submit(f'until [ -e "{gate}" ]; do sleep 0.05; done', gpus=1, gpu_type=gpu_type)
        for gpu_type in ("mi300x", "h100")
    ]
    for listed_job, resource in zip(jobs, ("amd.com/gpu", RESOURCE), strict=True):
        system.reaches(listed_job, "running")
        [pod] = system.pods(listed_job)
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert {name: amount for name, amount in limits.items() if "/" in name} == {resource: "1"}
    gate.touch()
    system.reaches(jobs[0], "succeeded")
    system.reaches(jobs[1], "succeeded")
    system.comes_to_rest(job, *jobs)


def test_foreign_pods_make_it_less_and_take_nothing_that_is_held(system: KubernetesSystem) -> None:
    gate = system.gate()
    held = system.submit(f'until [ -e "{gate}" ]; do sleep 0.05; done', gpus=2)
    node = system.reaches(held, "running")["allocations"][0]["node"]
    with system.foreign_pod(node, 1):
        eventually_sync(lambda: system.gpu_states(node) == {"held", "foreign", "free"})
        assert system.node(node)["schedulable"]
        jobs = [system.submit("true", gpus=count) for count in (1, 2, 1, 2, 4)]
        for job in jobs:
            done = system.reaches(job, "succeeded")
            assert done["gpus"] == 1 or done["allocations"][0]["node"] != node
            assert done["allocations"][-1]["pod"] == f"{job}-1-0", "no kubelet had to refuse any"
        assert system.job(held)["status"] == "running"
    gate.touch()
    system.reaches(held, "succeeded")
    system.comes_to_rest(held, *jobs)
