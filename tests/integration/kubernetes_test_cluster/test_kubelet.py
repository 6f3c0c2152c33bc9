"""The test kubelet takes pods through their lives as a real one does, on the emulator and on a real API server."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.api_client import ApiAnswerError, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.node.pods import Way
from tests.kubernetes.nodes import NodeSpec
from tests.waiting import eventually

_NUMBERS = itertools.count()
UNTIL = 'until [ -e "$0" ]; do sleep 0.05; done'
"""A script's line that waits for the file that its command names."""


class Pods:
    """The pods of one test."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self.client = client
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    async def create(self, *command: str, env: dict[str, str] | None = None, **spec: Any) -> str:
        """A pod on node-a; answers its name."""
        name = f"pod-{next(_NUMBERS)}"
        variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
        container = {"name": "main", "image": "image", "command": list(command), "env": variables}
        container |= spec.pop("container", {})
        body = {"restartPolicy": "Never", "nodeName": "node-a", "containers": [container], **spec}
        await self.client.call("POST", self.path, {"metadata": {"name": name}, "spec": body})
        return name

    async def get(self, name: str) -> JsonObject | None:
        """The pod, None when it is gone."""
        try:
            return await self.client.call("GET", f"{self.path}/{name}")
        except ApiAnswerError as problem:
            if problem.code == 404:
                return None
            raise

    async def reached(self, name: str, condition: Callable[[JsonObject], Any]) -> JsonObject:
        """The pod, once the condition holds."""

        async def there() -> JsonObject | None:
            pod = await self.get(name)
            return pod if pod is not None and condition(pod) else None

        pod = await eventually(there)
        assert pod is not None
        return pod

    async def ended(self, name: str) -> JsonObject:
        """How the container terminated; `status` is the pod's."""
        pod = await self.reached(name, lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"))
        terminated: JsonObject = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        return {**terminated, "status": pod["status"]}

    async def running(self, name: str) -> JsonObject:
        """Wait until it runs."""
        return await self.reached(name, lambda pod: pod["status"]["phase"] == "Running")

    async def delete(self, name: str, grace: int) -> None:
        """Ask for its end."""
        await self.client.call("DELETE", f"{self.path}/{name}", {"gracePeriodSeconds": grace})

    async def gone(self, name: str) -> None:
        """Wait until it is gone."""

        async def is_gone() -> bool:
            return await self.get(name) is None

        await eventually(is_gone)

    async def log(self, name: str, **query: str) -> str:
        """What it has printed."""
        return await self.client.text(f"{self.path}/{name}/log", **query)


def waiting(pod: JsonObject) -> str | None:
    """Why the container does not run yet."""
    states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
    return states[0].get("waiting", {}).get("reason") if states else None


@pytest.fixture
async def pods(api_server: ApiServer, namespace: str, kubelet: Kubelet) -> AsyncIterator[Pods]:
    async with api_server.client() as client:
        yield Pods(client, namespace)


async def test_a_command_runs_with_its_environment_and_leaves_its_code_and_log(pods: Pods) -> None:
    name = await pods.create("sh", "-c", 'echo "$A"; exit 7', env={"A": "x $(B) $$y", "B": "never"})
    end = await pods.ended(name)
    assert (end["exitCode"], end["reason"], end["status"]["phase"]) == (7, "Error", "Failed")
    assert await pods.log(name) == "x $(B) $y\n"


async def test_dollars_mean_what_they_mean_in_kubernetes(pods: Pods) -> None:
    name = await pods.create("sh", "-c", "echo $(A) $(NO) $$(A)", env={"A": "a"})
    await pods.ended(name)
    assert "a" in await pods.log(name)


async def test_a_signal_is_128_and_its_number(pods: Pods) -> None:
    assert (await pods.ended(await pods.create("sh", "-c", "kill -9 $$$$")))["exitCode"] == 137


async def test_a_command_that_is_not_there_never_starts(pods: Pods) -> None:
    end = await pods.ended(await pods.create("there-is-no-such-command"))
    assert (end["exitCode"], end["reason"]) == (128, "StartError")
    assert "there-is-no-such-command" in end["message"]


async def test_a_deleted_pod_has_its_grace(pods: Pods, kubelet: Kubelet) -> None:
    polite = await pods.create("sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done")
    deaf = await pods.create("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    for name in (polite, deaf):
        await pods.running(name)
        await eventually(lambda name=name: pods.log(name))
    said = pods.client.lines(f"{pods.path}/{polite}/log", follow="true")
    assert await anext(said) == "ready\n"
    await pods.delete(polite, 60)
    await pods.delete(deaf, 1)
    await pods.gone(polite)
    await pods.gone(deaf)
    assert [line async for line in said] == ["bye\n"]
    assert kubelet.running() == []


async def test_the_end_of_the_first_process_is_the_containers_and_takes_others_along(pods: Pods) -> None:
    name = await pods.create("sh", "-c", "sleep 600 & echo ready; wait")
    await pods.running(name)
    await eventually(lambda: pods.log(name))
    await pods.delete(name, 600)
    await pods.gone(name)


async def test_what_no_node_has_taken_goes_at_once(pods: Pods) -> None:
    name = await pods.create("true", nodeName=None)
    await pods.delete(name, 60)
    assert await pods.get(name) is None


async def test_a_log_is_followed_to_its_end_and_its_tail_can_be_had(pods: Pods, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    name = await pods.create("sh", "-c", f"echo 1; {UNTIL}; echo 2; echo 3; printf end", str(gate))
    await pods.running(name)
    following = asyncio.create_task(pods.log(name, follow="true"))
    gate.touch()
    assert await following == "1\n2\n3\nend"
    assert await pods.log(name, tailLines="2") == "3\nend"


async def test_a_waiting_container_has_no_log(pods: Pods, kubelet: Kubelet) -> None:
    kubelet.let("pod-*", Way.KEEPS_CREATING)
    name = await pods.create("true")
    await pods.reached(name, lambda pod: waiting(pod) == "ContainerCreating")
    with pytest.raises(ApiAnswerError, match="is waiting to start") as refused:
        await pods.log(name)
    assert refused.value.code == 400


async def test_the_deadline_of_the_pod_is_kept(pods: Pods) -> None:
    end = await pods.ended(await pods.create("sleep", "600", activeDeadlineSeconds=1))
    assert end["status"]["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (Way.IMAGE_PULL_FAILS, "ImagePullBackOff"),
        (Way.IMAGE_NOT_FOUND, "ImagePullBackOff"),
        (Way.IMAGE_NAME_INVALID, "InvalidImageName"),
        (Way.CREATE_FAILS, "CreateContainerError"),
        (Way.KEEPS_CREATING, "ContainerCreating"),
    ],
)
async def test_a_container_that_waits_says_why_and_can_be_deleted(
    pods: Pods, kubelet: Kubelet, way: Way, reason: str
) -> None:
    kubelet.let("pod-*", way)
    name = await pods.create("true")
    await pods.reached(name, lambda pod: waiting(pod) == reason)
    await pods.delete(name, 30)
    await pods.gone(name)
    assert kubelet.started == []


async def test_what_kept_a_container_back_can_pass(pods: Pods, kubelet: Kubelet) -> None:
    kubelet.let("pod-*", Way.IMAGE_PULL_FAILS)
    name = await pods.create("true")
    await pods.reached(name, lambda pod: waiting(pod) == "ImagePullBackOff")
    kubelet.let_be()
    assert (await pods.ended(name))["exitCode"] == 0


async def test_a_running_container_can_be_ended_by_its_node(pods: Pods, kubelet: Kubelet) -> None:
    big, low = await pods.create("sleep", "600"), await pods.create("sleep", "600")
    await pods.running(big)
    await pods.running(low)
    kubelet.let(big, Way.OUT_OF_MEMORY)
    kubelet.let(low, Way.EVICTED)
    end = await pods.ended(big)
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")
    assert (await pods.ended(low))["status"]["reason"] == "Evicted"


async def test_a_kubelet_may_refuse_a_pod(pods: Pods, kubelet: Kubelet) -> None:
    kubelet.let("pod-*", Way.REFUSED)
    name = await pods.create("true")
    pod = await pods.reached(name, lambda pod: pod["status"]["phase"] == "Failed")
    assert pod["status"]["reason"] == "UnexpectedAdmissionError"
    assert "containerStatuses" not in pod["status"]


async def test_more_cards_than_a_node_has_are_refused(pods: Pods) -> None:
    limits = {"container": {"resources": {"limits": {"nvidia.com/gpu": "3"}}}}
    first = await pods.create("sleep", "600", **limits)
    await pods.running(first)
    second = await pods.create("sleep", "600", **limits)
    pod = await pods.reached(second, lambda pod: pod["status"]["phase"] == "Failed")
    assert pod["status"]["reason"] == "OutOfnvidia.com/gpu"


async def test_two_holders_of_a_card_are_noticed(pods: Pods, kubelet: Kubelet) -> None:
    for cards in ("0,1", "1,2"):
        await pods.running(await pods.create("sleep", "600", env={"CUDA_VISIBLE_DEVICES": cards}))
    assert ["['1'] of node-a" in text for text in kubelet.double_use] == [True]


async def test_a_pod_may_die_without_a_word(pods: Pods, kubelet: Kubelet) -> None:
    name = await pods.create("sleep", "600")
    await pods.running(name)
    kubelet.let(name, Way.VANISHES)
    await eventually(lambda: kubelet.running() == [])
    pod = await pods.get(name)
    assert pod is not None
    assert pod["status"]["phase"] == "Running"
    await pods.delete(name, 5)
    await pods.gone(name)


async def test_a_silent_node_goes_on_and_reports_when_it_is_back(pods: Pods, kubelet: Kubelet, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    long, short = await pods.create("sleep", "600"), await pods.create("sh", "-c", f"{UNTIL}; exit 4", str(gate))
    await pods.running(long)
    await pods.running(short)
    kubelet.silence("node-a")
    node = await pods.client.call("GET", "/api/v1/nodes/node-a")
    assert [condition["status"] for condition in node["status"]["conditions"] if condition["type"] == "Ready"] == [
        "Unknown"
    ]
    await pods.delete(long, 1)
    gate.touch()
    await eventually(lambda: kubelet.running() == [long])
    assert (await pods.running(short))["status"]["phase"] == "Running"
    kubelet.answer_again("node-a")
    await pods.gone(long)
    assert (await pods.ended(short))["exitCode"] == 4


async def test_a_pod_removed_without_the_node_s_word_is_killed_when_the_node_is_back(
    pods: Pods, kubelet: Kubelet
) -> None:
    name = await pods.create("sleep", "600")
    await pods.running(name)
    kubelet.silence("node-a")
    await pods.delete(name, 0)
    assert await pods.get(name) is None
    later = await pods.create("true")
    await eventually(lambda: later in {worker.name for worker in [*kubelet.workers.values()]})
    assert kubelet.running() == [name]
    kubelet.answer_again("node-a")
    await eventually(lambda: kubelet.running() == [])


async def test_a_node_that_lost_its_power_has_lost_its_pods(pods: Pods, kubelet: Kubelet) -> None:
    name = await pods.create("sleep", "600")
    await pods.running(name)
    kubelet.power_off("node-a")
    await eventually(lambda: kubelet.running() == [])
    assert (await pods.running(name))["status"]["phase"] == "Running"
    kubelet.answer_again("node-a")
    assert (await pods.ended(name))["exitCode"] == 137


async def test_a_node_can_shrink(pods: Pods, kubelet: Kubelet) -> None:
    kubelet.add_node(NodeSpec("node-a", gpus=2))
    node = await pods.client.call("GET", "/api/v1/nodes/node-a")
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "2"
    kubelet.add_node(NodeSpec("node-a", gpus=0))
    node = await pods.client.call("GET", "/api/v1/nodes/node-a")
    assert "nvidia.com/gpu" not in node["status"]["capacity"]


async def test_pretended_containers_run_nothing(api_server: ApiServer, namespace: str) -> None:
    with Kubelet(api_server, namespace=namespace, pretend_s=0) as kubelet:
        async with api_server.client() as client:
            pods = Pods(client, namespace)
            name = await pods.create("there-is-no-such-command")
            await pods.running(name)
            await pods.delete(name, 60)
            await pods.gone(name)
        assert kubelet.started == [name]


async def test_a_gang_s_address_is_this_machine(api_server: ApiServer, namespace: str) -> None:
    with Kubelet(api_server, namespace=namespace, resolve=True):
        async with api_server.client() as client:
            pods = Pods(client, namespace)
            env = {"MASTER_ADDR": "job-1-0.job-1", "OTHER": "job-1-0.job-2"}
            gang = {"hostname": "job-1-0", "subdomain": "job-1"}
            name = await pods.create("sh", "-c", "echo $MASTER_ADDR $OTHER $HOSTNAME", env=env, **gang)
            await pods.ended(name)
            assert await pods.log(name) == "127.0.0.1 job-1-0.job-2 job-1-0\n"
