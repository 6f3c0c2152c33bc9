"""Pods that can't start, on Kubernetes, with the whole system: taken back, tried elsewhere, given up with the cause."""

from collections.abc import Iterator

import pytest

from tests.e2e.systems.kubernetes_system import KubernetesSystem, kubernetes_system
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.node.pods import Way
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import eventually_sync

NODES = (NodeSpec("node1"), NodeSpec("node2"), NodeSpec("node3", product="NVIDIA-L4", cpu="100m"))


@pytest.fixture(scope="module")
def system(
    api_server: ApiServer, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubernetesSystem]:
    folder = tmp_path_factory.mktemp("kubernetes-starts")
    patience = {"GPU_DEV_START_ALLOWANCE_S": "10", "GPU_DEV_MAX_STARTS": "2"}
    with kubernetes_system(api_server, module_database_url, folder, NODES, **patience) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _left_as_it_was(system: KubernetesSystem) -> Iterator[None]:
    yield
    system.left_as_it_was()


def node_of(job: dict[str, object]) -> str:
    """Where a one-node job is, or was."""
    allocations = job["allocations"]
    assert isinstance(allocations, list)
    return str(allocations[0]["node"])


def test_what_can_not_start_is_tried_elsewhere_and_given_up_with_the_cause(system: KubernetesSystem) -> None:
    system.kubelet.let("*", Way.NEVER_STARTS)
    unpulled, recovering, refused, misnamed, unschedulable = jobs = [
        *(system.submit("echo ran", gpu_type="h100") for _ in range(4)),
        system.submit("echo ran", gpu_type="l4"),
    ]
    system.kubelet.let(f"{unpulled}-*", Way.IMAGE_PULL_FAILS)
    system.kubelet.let(f"{recovering}-1-*", Way.IMAGE_PULL_FAILS)
    system.kubelet.let(f"{misnamed}-*", Way.IMAGE_NAME_INVALID)
    system.kubelet.let(f"{refused}-*", Way.KEEPS_CREATING)
    first = node_of(system.reaches(recovering, "starting"))
    waiting = eventually_sync(lambda: (job := system.job(unpulled))["reason"]["code"] == "image_pull_failed" and job)
    assert waiting["status"] == "starting", "it says why it waits while it waits"
    assert "registry.test/workload:1" in waiting["reason"]["detail"]

    assert system.reaches(misnamed, "failed")["reason"]["code"] == "image_pull_failed"
    assert system.job(misnamed)["allocations"][0]["pod"] == f"{misnamed}-1-0", "what can never work is not tried again"

    eventually_sync(lambda: [pod["metadata"]["name"] for pod in system.pods(recovering)] == [f"{recovering}-2-0"])
    system.kubelet.let_be((f"{unpulled}-*", Way.IMAGE_PULL_FAILS))
    done = system.reaches(recovering, "succeeded")
    assert done["allocations"][-1]["pod"] == f"{recovering}-2-0"
    assert node_of(done) != first, "another node is tried first"

    failed = system.reaches(unpulled, "failed")
    assert failed["reason"]["code"] == "image_pull_failed"
    assert failed["allocations"][-1]["pod"] == f"{unpulled}-2-0"
    failed = system.reaches(unschedulable, "failed")
    assert failed["reason"]["code"] == "unschedulable"
    assert "cpu" in failed["reason"]["detail"]
    system.reaches(refused, "succeeded")
    system.comes_to_rest(*jobs)


def test_an_image_that_a_registry_does_not_have_is_not_waited_for(system: KubernetesSystem) -> None:
    system.kubelet.let("*", Way.NEVER_STARTS)
    job = system.submit("echo ran", gpu_type="h100")
    first = node_of(system.reaches(job, "starting"))
    system.kubelet.let("*", Way.IMAGE_NOT_FOUND)
    failed = system.reaches(job, "failed")
    system.kubelet.let_be()
    assert failed["reason"]["code"] == "image_pull_failed"
    assert "It was tried 2 times." in failed["reason"]["detail"]
    assert node_of(failed) != first
    with system.http as http:
        events = http.get(f"/v1/jobs/{job}/events").text
    assert "start_failed" in events
    assert "start_timed_out" not in events
    system.comes_to_rest(job)


def test_a_pod_that_its_kubelet_refuses_is_made_on_another_node(system: KubernetesSystem) -> None:
    system.kubelet.let("job-*-1-0", Way.REFUSED)
    job = system.submit("echo ran", gpus=4)
    done = system.reaches(job, "succeeded")
    assert done["allocations"][-1]["pod"] == f"{job}-2-0"
    assert system.log(job) == "ran\n"
    system.comes_to_rest(job)


def test_a_cancel_wins_over_another_start(system: KubernetesSystem) -> None:
    system.kubelet.let("*", Way.IMAGE_PULL_FAILS)
    job = system.submit("echo ran")
    eventually_sync(lambda: system.job(job)["reason"]["code"] == "image_pull_failed")
    system.cancel(job)
    assert system.reaches(job, "cancelled")["reason"]["code"] == "cancelled_by_user"
    system.comes_to_rest(job)
