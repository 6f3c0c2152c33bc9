"""What `kubectl describe pod` and `kubectl get events` say of a job's pod."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs import pod_events
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.jobs.pod_events import PodEvents
from reservation_core.adapters.kubernetes.other_objects.event_writer import Regarding
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuAttach
from reservation_core.domain.model import PodName, PodPhase, PodSpec, Reason
from reservation_core.domain.statuses import ReasonCode
from tests.integration.cluster_behaviour import GRACE, SpecMaker, finished, reaches
from tests.kubernetes.api_server import ApiServer
from tests.waiting import eventually

EXPIRED = Reason(ReasonCode.DURATION_REACHED, "The job's time was over.")
LOST = Reason(ReasonCode.MAINTENANCE, "Node node-a is in maintenance until 18:00 UTC. The job waits again.")


async def _events(server: ApiServer, namespace: str, spec: PodSpec, reason: str) -> list[dict[str, Any]]:
    async with server.client() as client:
        listed = await client.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return [
        event for event in listed["items"] if event["regarding"]["name"] == str(spec.name) and event["reason"] == reason
    ]


async def test_a_pod_says_its_gpus_and_why_it_is_ended(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    spec = make_spec("sleep", "600", env=(("CUDA_VISIBLE_DEVICES", "1,3"),), pods=2, name=PodName("job-ev3nts", 1, 1))
    for _ in range(2):
        await cluster.create_pod(spec)  # the second finds it there, and has nothing to say
    await eventually(reaches(cluster, spec, PodPhase.RUNNING))
    event = (await eventually(lambda: _events(api_server, namespace, spec, "GPUsAssigned")))[0]
    until = spec.ends_at.isoformat(timespec="seconds").removesuffix("+00:00")
    assert event["note"].startswith(f"GPUs 1,3 of node {spec.node} until {until}")
    assert event["note"].endswith("for ada's job-ev3nts, pod 1 of 2")
    async with api_server.client() as client:
        pod = await client.call("GET", f"/api/v1/namespaces/{namespace}/pods/{spec.name}")
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert (event["type"], event["reportingController"]) == ("Normal", "gpu-dev-server")
    for _ in range(2):
        await cluster.delete_pod(str(spec.name), GRACE, why=LOST)  # an end is asked for until it has come
    event = (await eventually(lambda: _events(api_server, namespace, spec, "Maintenance")))[0]
    assert (event["type"], event["note"]) == ("Warning", LOST.detail)
    await eventually(reaches(cluster, spec, PodPhase.GONE))
    for reason in ("GPUsAssigned", "Maintenance"):
        assert len(await _events(api_server, namespace, spec, reason)) == 1


async def test_while_too_many_wait_starts_are_left_out_and_ends_are_not(
    transport: Transport,
    api_server: ApiServer,
    namespace: str,
    make_spec: SpecMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_events, "_LATE_AT_MOST_S", 2 / pod_events._PER_S)  # two may wait
    events = PodEvents(transport, SystemClock())
    specs = [make_spec("true") for _ in range(3)]
    for spec in specs:
        events.created(spec, Regarding(namespace, str(spec.name), "uid"), GpuAttach.ENV)
    events.ending(Regarding(namespace, str(specs[2].name), "uid"), LOST)
    await eventually(lambda: _events(api_server, namespace, specs[2], "Maintenance"))
    found = [await _events(api_server, namespace, spec, "GPUsAssigned") for spec in specs]
    assert [len(its) for its in found] == [0, 1, 0]
    await events.close()


async def test_where_the_kubelet_picks_the_gpus_it_is_said_how_many_and_not_which(
    transport: Transport, rules: ClusterRules, api_server: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    by_plugin = replace(rules, pods=replace(rules.pods, attach=GpuAttach.DEVICE_PLUGIN))
    spec = make_spec("sleep", "600", env=(("CUDA_VISIBLE_DEVICES", "1,3"),))
    cluster = KubernetesCluster(transport, by_plugin, SystemClock())
    await cluster.create_pod(spec)
    event = (await eventually(lambda: _events(api_server, namespace, spec, "GPUsAssigned")))[0]
    assert event["note"].startswith(f"2 GPUs of node {spec.node} until ")
    await cluster.close()


async def test_an_end_that_was_due_is_no_warning_and_removing_what_is_over_no_event(
    cluster: KubernetesCluster, api_server: ApiServer, namespace: str, make_spec: SpecMaker
) -> None:
    over, due = make_spec("true"), make_spec("sleep", "600")
    for spec in (over, due):
        await cluster.create_pod(spec)
    await finished(cluster, over)
    await eventually(reaches(cluster, due, PodPhase.RUNNING))
    for spec in (over, due):
        await cluster.delete_pod(str(spec.name), timedelta(seconds=1), why=EXPIRED)
    event = (await eventually(lambda: _events(api_server, namespace, due, "DurationReached")))[0]
    assert event["type"] == "Normal"
    assert await _events(api_server, namespace, over, "DurationReached") == []
