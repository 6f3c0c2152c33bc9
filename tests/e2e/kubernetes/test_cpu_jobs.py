"""Jobs without GPUs on a cluster, with the whole system as a process: beside jobs with GPUs, and in nobody's way.

The API server is the emulator, or a real one where `KUBEBUILDER_ASSETS` names its programs.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.systems.kubernetes_system import KubernetesSystem, kubernetes_system
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import eventually_sync

NODES = ("node1", "node2")
CPUS = 10
SHARE = 0.2


@pytest.fixture(scope="module")
def system(
    api_server: ApiServer, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubernetesSystem]:
    nodes = [NodeSpec(name, gpus=2, cpu=str(CPUS), memory="64Gi") for name in NODES]
    folder = tmp_path_factory.mktemp("cpu-jobs-system")
    settings = {"GPU_DEV_CPU_JOB_SHARE": str(SHARE)}
    with kubernetes_system(api_server, module_database_url, folder, nodes, **settings) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _left_as_it_was(system: KubernetesSystem) -> Iterator[None]:
    yield
    system.left_as_it_was()


def cpu_job(system: KubernetesSystem, script: str, cpus: float = 1) -> str:
    return system.submit(script, gpus=0, resources={"cpus": cpus, "memory": "128Mi"})


def requests(pod: dict[str, Any]) -> dict[str, str]:
    [container] = pod["spec"]["containers"]
    found: dict[str, str] = container["resources"]["requests"]
    return found


def test_it_runs_pinned_without_gpus_while_all_gpus_are_taken(system: KubernetesSystem) -> None:
    with_gpus = [system.submit("sleep 600 & wait", gpus=2) for _ in NODES]
    for job in with_gpus:
        system.reaches(job, "running")
    gate = system.gate()
    said = 'echo "$GPU_DEV_NODE|$CUDA_VISIBLE_DEVICES|$GPU_DEV_JOB_ID"'
    job = cpu_job(system, f'{said}; until [ -e "{gate}" ]; do sleep 0.05; done')
    running = system.reaches(job, "running")
    [pod] = system.pods(job)
    node = pod["spec"]["nodeName"]
    assert node in NODES
    assert [(part["node"], part["gpu_indices"]) for part in running["allocations"]] == [(node, [])]
    assert requests(pod) == {"cpu": "1", "memory": "128Mi"}
    eventually_sync(lambda: system.log(job) == f"{node}||{job}\n")

    gate.touch()
    assert system.reaches(job, "succeeded")["exit_code"] == 0
    for other in with_gpus:
        assert system.job(other)["status"] == "running"
        system.cancel(other)
    system.comes_to_rest(job, *with_gpus)


def test_more_than_the_nodes_keep_for_them_wait_and_take_turns(system: KubernetesSystem) -> None:
    """Each of two nodes keeps two CPUs: of five jobs with one CPU, four run, and the fifth follows the first to end."""
    gates = [system.gate() for _ in range(5)]
    jobs = [cpu_job(system, f'until [ -e "{gate}" ]; do sleep 0.05; done') for gate in gates]
    for job in jobs[:4]:
        system.reaches(job, "running")
    assert system.job(jobs[4])["status"] == "queued"
    assert sorted(pod["spec"]["nodeName"] for job in jobs[:4] for pod in system.pods(job)) == sorted(NODES * 2)
    # All GPUs are free for jobs with GPUs meanwhile.
    with_gpus = system.submit("true", gpus=2)
    system.reaches(with_gpus, "succeeded")

    gates[0].touch()
    system.reaches(jobs[0], "succeeded")
    system.reaches(jobs[4], "running")
    for gate in gates[1:]:
        gate.touch()
    for job in jobs[1:]:
        system.reaches(job, "succeeded")
    system.comes_to_rest(with_gpus, *jobs)


def test_one_that_is_cancelled_gives_its_part_back(system: KubernetesSystem) -> None:
    first = [cpu_job(system, "sleep 600 & wait", cpus=2) for _ in NODES]
    for job in first:
        system.reaches(job, "running")
    waiting = cpu_job(system, "true", cpus=2)
    system.cancel(first[0])
    system.reaches(waiting, "succeeded")
    system.cancel(first[1])
    for job in first:
        system.reaches(job, "cancelled")
    system.comes_to_rest(waiting, *first)
