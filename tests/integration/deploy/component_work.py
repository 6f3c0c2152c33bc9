"""What each component does to the API server in its work, from end to end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from pod_scheduling.adapters.kubernetes.guarded_pods import GuardRules, KubernetesGuardedPods
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import KubernetesCluster
from reservation_core.adapters.kubernetes.nodes.agent_samples import AgentSamples
from reservation_core.adapters.kubernetes.nodes.node_agent import NodeAgent
from reservation_core.adapters.kubernetes.other_objects.disk_claims import ClaimRules, DiskClaims
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter
from reservation_core.adapters.kubernetes.other_objects.leases import Lease, LeaseRules
from reservation_core.adapters.kubernetes.sessions.pod_streams import KubernetesPodStreams
from reservation_core.adapters.local.inventory import LocalInventory
from reservation_core.domain.model import PodName, PodPhase, PodSecret, PodSpec, PodStatus, PodWorkload
from reservation_core.domain.sessions.secret_uses import SecretUse
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.disks.disks import DiskCopy, DiskRefusedError
from reservation_core.ports.sessions.pod_streams import NoTerminalError, PortClosedError, Program, TerminalSize
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.kubernetes.custom_kinds import define_kind, remove_kind
from tests.programs.ports import own_port
from tests.waiting import eventually

WORKLOADS = "gpu-dev"


SYSTEM = "gpu-dev-system"


JOB = "job-m4n1f3st"


PODS = f"/api/v1/namespaces/{WORKLOADS}/pods"


GRACE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Installation:
    """A component's way to the API server, and an administrator's cluster beside it."""

    transport: Transport
    cluster: KubernetesCluster
    administrator: KubernetesCluster
    server: ApiServer


def specs() -> list[PodSpec]:
    """A gang of two with a secret that prints a line and waits to be ended."""
    now = datetime.now(UTC)
    return [
        PodSpec(
            name=PodName(JOB, 1, rank),
            user="ada",
            node=node,
            gpu_indices=(0,),
            gpu_uuids=(None,),
            workload=PodWorkload(command=("sh", "-c", "echo here I am; exec sleep 600")),
            env=(("PATH", "/usr/bin:/bin"),),
            deadline=now + timedelta(hours=1),
            grace=GRACE,
            user_id=7,
            pods=2,
            starts_at=now,
            ends_at=now + timedelta(hours=1),
            secrets=(PodSecret(SecretUse("token", env="TOKEN"), "hunter2"),),
        )
        for rank, node in enumerate(("node-a", "node-b"))
    ]


async def run_gang(cluster: KubernetesCluster) -> None:
    for spec in specs():
        await cluster.create_pod(spec)

    async def all_run() -> bool:
        pods = await cluster.find_pods(JOB)
        return len(pods) == 2 and all(pod.phase is PodPhase.RUNNING for pod in pods)

    await eventually(all_run)


async def read_log(cluster: KubernetesCluster, *, follow: bool) -> bytes:
    async with aclosing(cluster.pod_logs(f"{JOB}-1-0", follow=follow)) as chunks:
        async for chunk in chunks:
            if chunk:
                return chunk
    return b""


async def serve_logs_and_sessions(this: Installation) -> None:
    """What the API service asks."""
    await serve_sessions(this)
    assert await read_log(this.cluster, follow=True) == b"here I am\n"


async def serve_sessions(this: Installation) -> None:
    """What the SSH gateway asks."""
    await run_gang(this.administrator)
    streams, pod = KubernetesPodStreams(this.transport, WORKLOADS), specs()[0].name
    program = await streams.run(pod, Program(("cat",)))
    await program.close()  # by another exec
    with pytest.raises(PortClosedError):
        await (await streams.connect(pod, own_port())).read()
    with pytest.raises(NoTerminalError):
        await streams.attach(pod, TerminalSize())
    with suppress(ApiServerError, ClusterUnavailableError):  # as if admission had given it a terminal
        await this.transport.open_websocket(f"{PODS}/{pod}/attach", {"stdout": True}, ("v5.channel.k8s.io",))


async def process_reservations(this: Installation) -> None:
    """What the processor asks, from a gang's start to its end."""
    cluster = this.cluster
    seen: list[PodStatus] = []

    async def watch() -> None:
        async with aclosing(cluster.watch()) as statuses:
            async for status in statuses:
                seen.append(status)  # noqa: PERF401 -- to be seen as they come

    watching = asyncio.create_task(watch())
    await run_gang(cluster)
    for spec in specs():
        await cluster.create_pod(spec)  # an operation that is delivered twice
    await eventually(lambda: [status for status in seen if status.phase is PodPhase.RUNNING])
    assert len((await cluster.list_pods()).pods) == 2
    await cluster.extend_deadline(f"{JOB}-1-0", datetime.now(UTC) + timedelta(hours=2))
    assert await read_log(cluster, follow=False) == b"here I am\n"
    await cluster.signal_pod(f"{JOB}-1-0", "CONT")  # changes nothing for a command that runs
    await cluster.delete_pod(f"{JOB}-1-0", GRACE)
    await cluster.forget_pod(f"{JOB}-1-1")

    async def gone() -> bool:
        return not await cluster.find_pods(JOB)

    await eventually(gone)
    await eventually(lambda: [status for status in seen if status.phase is PodPhase.GONE])
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await keep_a_disk(this)
    assert await AgentSamples(this.transport, SYSTEM, 9404).look(datetime.now(UTC)) == []


async def keep_a_disk(this: Installation) -> None:
    """Make a disk, ask for another size, which is refused before its first use, copy it, and remove all."""
    claims = DiskClaims(this.transport, ClaimRules(WORKLOADS, "standard", "ReadWriteMany", "standard"))
    await claims.make("disk-m4n1f3st", 2**30)
    with suppress(DiskRefusedError):
        await claims.make("disk-m4n1f3st", 2**31)
    async with this.server.client() as client:
        await define_kind(client, "snapshot.storage.k8s.io", "v1", "VolumeSnapshot", "volumesnapshots", "Namespaced")
    for copy in (
        DiskCopy("disk-m4n1f3st", 2**30, "", is_still=False, into_snapshot_id="snap-m4n1f3st"),
        DiskCopy("disk-m4n1f3st", 2**30, "", is_still=False, clone_id="disk-c10ne"),
    ):
        for _ in range(2):
            assert not await claims.copy(copy)
    await claims.remove_snapshot("snap-m4n1f3st")
    await claims.remove("disk-c10ne")
    await claims.remove("disk-m4n1f3st")
    async with this.server.client() as client:
        await remove_kind(client, "snapshot.storage.k8s.io", "volumesnapshots")


async def look_at_the_cluster(this: Installation) -> None:
    """What the availability updater asks."""
    assert {node.name for node in await this.cluster.list_nodes()} >= {"node-a", "node-b"}
    pod = {"metadata": {"name": "claiming"}, "spec": {"nodeName": "node-a", **POD["spec"]}}
    pod["spec"]["resourceClaims"] = [{"name": "card", "resourceClaimName": "card"}]
    devices = {"requests": [{"name": "card", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
    claim = {"metadata": {"name": "card"}, "spec": {"devices": devices}}
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    await make_namespace(this.server, "default")
    async with this.server.client() as client:
        await client.call("POST", claims, claim)
        await client.call("POST", "/api/v1/namespaces/default/pods", pod)
        try:
            [claiming] = (await this.cluster.list_pods(foreign=True)).foreign
        finally:
            await client.call("DELETE", "/api/v1/namespaces/default/pods/claiming", {"gracePeriodSeconds": 0})
            await client.call("DELETE", f"{claims}/card")
    assert (claiming.description, claiming.gpu_count) == ("default/claiming", 1)


async def look_for_late_pods(this: Installation) -> None:
    """What the expiry asks: of late pods of jobs, and of pods that people made."""
    await this.cluster.list_pods()
    await end_pods(this)


async def end_pods(this: Installation) -> None:
    """Make the lease holder's requests that end pods that people made."""
    pod = {"metadata": {"name": "booked"}, "spec": {"nodeName": "node-a", **POD["spec"]}}
    pod["metadata"]["annotations"] = {"gpu-dev/terminate-at": "2030-01-01T00:00:00Z"}
    await make_namespace(this.server, "default")
    events = EventWriter(this.transport, SystemClock(), "reservation-expiry", "test")
    pods = KubernetesGuardedPods(this.transport, GuardRules(), events)
    lease = Lease(this.transport, SystemClock(), SYSTEM, "gpu-dev-pod-ending", "test", LeaseRules(3, 2, 0.1))
    shown: list[bool] = []
    async with this.server.client() as client:
        await client.call("POST", "/api/v1/namespaces/default/pods", pod)
        following = asyncio.create_task(pods.follow(lambda found: shown.append(bool(found))))
        keeping = asyncio.create_task(lease.keep(lambda: None, lambda: True))
        try:
            [booked] = [listed for listed in (await pods.list_pods()).values() if listed.name == "booked"]
            await eventually(lambda: shown and shown[-1])
            await eventually(lease.holds)
            await pods.mark_end(booked, datetime.now(UTC))
            pods.add_event(booked, "Ending", "This pod is ended.")
            await pods.write_events()
            await pods.evict(booked, 1)
        finally:
            for task in (following, keeping):
                task.cancel()
            await asyncio.gather(following, keeping, return_exceptions=True)
            await client.try_call("DELETE", "/api/v1/namespaces/default/pods/booked", {"gracePeriodSeconds": 0})


async def tell_of_a_node(this: Installation) -> None:
    """What the node agent asks, as far as roles go: without the policy beside them."""
    await NodeAgent(this.transport, "node-a", LocalInventory("h100:4", "node-a")).update()


WORK: dict[str, Callable[[Installation], Awaitable[None]]] = {
    "api-service": serve_logs_and_sessions,
    "ssh-gateway": serve_sessions,
    "reservation-processor": process_reservations,
    "availability-updater": look_at_the_cluster,
    "reservation-expiry": look_for_late_pods,
}


POD = {
    "metadata": {"name": "intruder"},
    "spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]},
}
