"""Pods with maps go to the nodes that their maps name; whoever can't, is told why, and goes when it can."""

import asyncio
import signal

import pytest

from tests.integration.gpu_scheduler.conftest import Cluster, Starter, admitted, pod
from tests.waiting import PATIENCE_S, eventually


async def test_the_seeds_five_pods(cluster: Cluster, four_nodes: list[str], start: Starter) -> None:
    process = await start(forked=False)
    for index in range(5):
        await cluster.add(admitted(pod(f"gpu-scheduler-check-{index}")))
    one, two, three, four = four_nodes
    for index, expected in enumerate((one, two, three, four, four)):
        await cluster.eventually_on(f"gpu-scheduler-check-{index}", expected)
    devices = {}
    for index in range(5):
        found = await cluster.read(f"gpu-scheduler-check-{index}")
        env = {variable["name"]: variable.get("value") for variable in found["spec"]["containers"][0]["env"]}
        devices[index] = env["CUDA_VISIBLE_DEVICES"]
    assert devices == {0: "0,1", 1: "2", 2: "0,1,2", 3: "3", 4: "3"}
    await eventually(lambda: len(process.logged("bound")) == 5)


async def test_the_guides_three_pods(cluster: Cluster, four_nodes: list[str], start: Starter) -> None:
    await start()
    three_lines = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n"
    await cluster.add(admitted(pod("webhook-test-0", "0=node1:0,1")))
    await cluster.add(admitted(pod("webhook-test-1", three_lines)))
    await cluster.add(admitted(pod("webhook-test-2", three_lines)))
    for index in range(3):
        await cluster.eventually_on(f"webhook-test-{index}", four_nodes[index])


async def test_a_node_is_found_by_its_own_name_too(cluster: Cluster, start: Starter) -> None:
    name = await cluster.add_node("node1")
    await start()
    await cluster.add(admitted(pod("own-0", f"0={name}:0")))
    await cluster.eventually_on("own-0", name)


async def test_what_is_told_health_included(cluster: Cluster, start: Starter) -> None:
    process = await start()
    assert await process.get("/health") == (200, '{"service":"gpu-scheduler","status":"healthy"}')
    await cluster.add(admitted(pod("nowhere-0", "0=nowhere:0")))
    await cluster.eventually_told("nowhere-0", "NoSuchNode", "There is no node 'nowhere'")

    async def event() -> bool:
        path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"
        found = (await cluster.client.call("GET", path))["items"]
        return [
            (listed_event["reason"], listed_event["regarding"]["name"], listed_event["type"]) for listed_event in found
        ] == [("FailedScheduling", "nowhere-0", "Warning")]

    await eventually(event)


async def test_it_goes_as_soon_as_its_node_is_open_ready_and_there(cluster: Cluster, start: Starter) -> None:
    await start()
    cordoned = await cluster.add_node("node1", unschedulable=True)
    unready = await cluster.add_node("node2", ready=False)
    tainted = await cluster.add_node("node3", taints=[{"key": "mine", "value": "yes", "effect": "NoSchedule"}])
    for index, words in enumerate(("NodeCordoned", "NodeNotReady", "mine=yes:NoSchedule", "NoSuchNode")):
        await cluster.add(admitted(pod(f"wait-{index}")))
        await cluster.eventually_told(f"wait-{index}", words)
    await cluster.change_node(cordoned, {"spec": {"unschedulable": None}})
    await cluster.eventually_on("wait-0", cordoned)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.change_node(unready, ready, status=True)
    await cluster.eventually_on("wait-1", unready)
    await cluster.change_node(tainted, {"spec": {"taints": None}})
    await cluster.eventually_on("wait-2", tainted)
    late = await cluster.add_node("node4")
    await cluster.eventually_on("wait-3", late)


async def test_two_nodes_of_one_name_are_an_error_until_one_is_renamed(cluster: Cluster, start: Starter) -> None:
    await start()
    first, second = await cluster.add_node("node1"), await cluster.add_node("node1")
    await cluster.add(admitted(pod("two-0")))
    await cluster.eventually_told("two-0", "TwoNodes", first, second)
    await cluster.change_node(second, {"metadata": {"labels": {"gpu-node-name": None}}})
    await cluster.eventually_on("two-0", first)


async def test_what_is_taken_is_waited_for(cluster: Cluster, start: Starter) -> None:
    await start()
    name = await cluster.add_node("node1")
    large = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "6"}, "limits": {"cpu": "6"}}}
    await cluster.add(admitted(pod("large-0", "0=node1:0", containers=[large])))
    await cluster.eventually_on("large-0", name)
    await cluster.add(admitted(pod("more-0", "0=node1:1", containers=[large])))
    await cluster.eventually_told("more-0", "NotEnoughResources", "2000 of cpu")
    await cluster.client.call("DELETE", f"{cluster.path}/large-0", {"gracePeriodSeconds": 0})
    await cluster.eventually_on("more-0", name)


async def test_cards_of_another_map_are_waited_for_and_shared_within_one(cluster: Cluster, start: Starter) -> None:
    await start()
    name = await cluster.add_node("node1")
    await cluster.add(admitted(pod("first-0", "0=node1:0,1\n1=node1:1")))
    await cluster.add(admitted(pod("first-1", "0=node1:0,1\n1=node1:1")))
    await cluster.eventually_on("first-0", name)
    await cluster.eventually_on("first-1", name)
    await cluster.add(admitted(pod("second-0", "0=node1:1")))
    await cluster.eventually_told("second-0", "DeviceInUse", "first-")
    for word in ("first-0", "first-1"):
        await cluster.client.call("DELETE", f"{cluster.path}/{word}", {"gracePeriodSeconds": 0})
    await cluster.eventually_on("second-0", name)


@pytest.mark.parametrize("overlap", ["warn", "allow"])
async def test_overlap_may_be_allowed(cluster: Cluster, start: Starter, overlap: str) -> None:
    await start(GPU_DEV_SCHEDULER__OVERLAP=overlap)
    name = await cluster.add_node("node1")
    await cluster.add(admitted(pod("first-0", "0=node1:0")))
    await cluster.eventually_on("first-0", name)
    await cluster.add(admitted(pod("second-0", "0=node1:0,1")))
    await cluster.eventually_on("second-0", name)
    await cluster.add(admitted(pod("third-0", "0=node1:2")))
    await cluster.eventually_on("third-0", name)
    path = f"/apis/events.k8s.io/v1/namespaces/{cluster.namespace}/events"

    async def told() -> bool:
        found = (await cluster.client.call("GET", path))["items"]
        seen = {(event["regarding"]["name"], event["reason"]) for event in found}
        scheduled = {("first-0", "Scheduled"), ("second-0", "Scheduled"), ("third-0", "Scheduled")}
        return seen == scheduled | ({("second-0", "DeviceShared")} if overlap == "warn" else set())

    await eventually(told)


async def test_two_peoples_pods_share_no_card_whatever_their_maps_say(cluster: Cluster, start: Starter) -> None:
    await start()
    name = await cluster.add_node("node1")
    text = "0=node1:0\n1=node1:0\n2=node1:0"
    for number in range(2):
        await cluster.add(admitted(pod(f"hers-{number}", text), by="ann"))
        await cluster.eventually_on(f"hers-{number}", name)
    await cluster.add(admitted(pod("his-2", text), by="bob"))
    await cluster.eventually_told("his-2", "DeviceInUse", "hers-0")


async def test_what_the_webhook_did_not_touch_is_not_bound(cluster: Cluster, start: Starter) -> None:
    await start()
    name = await cluster.add_node("node1")
    await cluster.add(pod("bare-0", "0=node1:0"))
    await cluster.eventually_told("bare-0", "NotAdmitted", "webhook did not see this pod")
    forged = admitted(pod("forged-0", "0=node1:0"))
    forged["spec"]["containers"][0]["env"] = [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"}]
    await cluster.add(forged)
    await cluster.eventually_told("forged-0", "NotAdmitted", "CUDA_VISIBLE_DEVICES=0")
    edited = admitted(pod("edited-0", "0=node9:0"))
    await cluster.add(edited)
    await cluster.eventually_told("edited-0", "NoSuchNode")
    change = {"metadata": {"annotations": {"gpu-scheduling-map": "0=node1:0"}}}
    await cluster.client.call("PATCH", f"{cluster.path}/edited-0", change, content_type="application/merge-patch+json")
    await cluster.eventually_told("edited-0", "NotAdmitted", "was changed after")
    assert name


async def test_a_gated_pod_is_left_alone_until_its_gates_are_gone(cluster: Cluster, start: Starter) -> None:
    await start()
    name = await cluster.add_node("node1")
    await cluster.add(admitted(pod("gated-0", "0=node1:0", schedulingGates=[{"name": "test/gate"}])))
    await cluster.add(admitted(pod("free-0", "0=node1:1")))
    await cluster.eventually_on("free-0", name)
    assert await cluster.node_of("gated-0") is None
    change = {"spec": {"schedulingGates": None}}
    await cluster.client.call("PATCH", f"{cluster.path}/gated-0", change, content_type="application/merge-patch+json")
    await cluster.eventually_on("gated-0", name)


async def test_when_the_leader_dies_the_other_goes_on(cluster: Cluster, start: Starter) -> None:
    name = await cluster.add_node("node1")
    first, second = await start(), await start()
    await cluster.add(admitted(pod("before-0", "0=node1:0")))
    await cluster.eventually_on("before-0", name)
    await eventually(lambda: first.logged("bound") or second.logged("bound"))
    if second.logged("bound"):
        first, second = second, first
    first.process.send_signal(signal.SIGKILL)
    after = "\n".join(f"{index}=node1:{index + 1}" for index in range(20))
    for index in range(20):
        await cluster.add(admitted(pod(f"after-{index}", after)))
    for index in range(20):
        await cluster.eventually_on(f"after-{index}", name)
    await eventually(second.leading)
    await eventually(lambda: len(second.logged("bound")) == 20)
    bound = {line["pod"] for line in second.logged("bound")}
    assert bound == {f"{cluster.namespace}/after-{index}" for index in range(20)}


async def test_whoever_ends_in_order_gives_the_lease_back(cluster: Cluster, start: Starter) -> None:
    first = await start(GPU_DEV_SCHEDULER__LEASE_S="600", GPU_DEV_SCHEDULER__RENEW_WITHIN_S="300")
    await eventually(first.leading)
    first.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.process.wait, PATIENCE_S) == 0
    second = await start(GPU_DEV_SCHEDULER__LEASE_S="600", GPU_DEV_SCHEDULER__RENEW_WITHIN_S="300")
    await eventually(second.leading)


async def test_a_pod_of_another_scheduler_is_left_alone(cluster: Cluster, start: Starter) -> None:
    process = await start()
    name = await cluster.add_node("node1")
    other = pod("other-0", "0=node1:0")
    other["spec"]["schedulerName"] = "somebody-else"
    await cluster.add(other)
    await cluster.add(admitted(pod("ours-0", "0=node1:0")))
    await cluster.eventually_on("ours-0", name)
    assert await cluster.node_of("other-0") is None
    bound = await eventually(lambda: process.logged("bound"))
    assert [line["pod"] for line in bound] == [f"{cluster.namespace}/ours-0"]
