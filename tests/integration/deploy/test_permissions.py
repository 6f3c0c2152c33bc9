"""Each component does its work with its own account's token, and that account may do nothing that it doesn't need.

On the emulator, which refuses nobody, the requests that were made are held against the manifests; a real API server
(KUBEBUILDER_ASSETS) judges by itself as well.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from pod_scheduling.adapters.kubernetes.guarded_pods import GuardRules, KubernetesGuardedPods
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.jobs.foreign_pods import ForeignRules
from reservation_core.adapters.kubernetes.nodes.agent_samples import AgentSamples
from reservation_core.adapters.kubernetes.nodes.node_agent import NodeAgent
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules
from reservation_core.adapters.kubernetes.other_objects.disk_claims import ClaimRules, DiskClaims
from reservation_core.adapters.kubernetes.other_objects.event_writer import EventWriter
from reservation_core.adapters.kubernetes.other_objects.leases import Lease, LeaseRules
from reservation_core.adapters.kubernetes.pods.built_pods import PodRules
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuPin
from reservation_core.adapters.kubernetes.sessions.pod_streams import KubernetesPodStreams
from reservation_core.adapters.local.inventory import LocalInventory
from reservation_core.domain.model import PodName, PodPhase, PodSpec, PodStatus, PodWorkload
from reservation_core.domain.sessions.secret_uses import PodSecret, SecretUse
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.disks.disks import DiskRefusedError
from reservation_core.ports.sessions.pod_streams import NoTerminalError, PortClosedError, Program, TerminalSize
from tests.kubernetes.api_client import MERGE, ApiAnswerError, JsonObject
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.kubernetes.fault_proxy import FaultProxy
from tests.kubernetes.manifests import objects
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.permissions import Permission, granted, needed_by
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
    """Make a disk, ask for another size, which is refused before its first use, and remove it."""
    claims = DiskClaims(this.transport, ClaimRules(WORKLOADS, "standard", "ReadWriteMany"))
    await claims.make("disk-m4n1f3st", 2**30)
    with suppress(DiskRefusedError):
        await claims.make("disk-m4n1f3st", 2**31)
    await claims.remove("disk-m4n1f3st")


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


def rules() -> ClusterRules:
    pods = PodRules(WORKLOADS, pin=GpuPin.NODE_NAME, default_image="registry.test/workload:1")
    return ClusterRules(pods, NodeRules(), ForeignRules(WORKLOADS), creates_per_s=0)


async def asked_by(work: Callable[[Installation], Awaitable[None]], server: ApiServer, token: str) -> set[Permission]:
    """Do a component's work with a token; returns what that needed."""
    with FaultProxy(server) as proxy:
        transport = Transport(Credentials(proxy.kubeconfig(token, "component"), None, {}), 10)
        direct = Transport(Credentials(server.kubeconfig, None, {}), 10)
        try:
            component = KubernetesCluster(transport, rules(), SystemClock())
            await work(Installation(transport, component, KubernetesCluster(direct, rules(), SystemClock()), server))
        finally:
            await transport.close()
            await direct.close()
        # The proxy notes a stream when that is over.
        await eventually(lambda: proxy.cut_watches() == 0)
    return {permission for request in proxy.requests for permission in needed_by(request.method, request.path)}


@pytest.mark.parametrize("component", WORK)
async def test_a_component_works_and_needs_all_that_its_account_may(
    component: str, deployed: ApiServer, workloads: str, kubelet: Kubelet
) -> None:
    token = await deployed.token_of(SYSTEM, component)
    asked = await asked_by(WORK[component], deployed, token)
    may = granted(component)
    assert {one for one in asked if not any(permission.covers(one) for permission in may)} == set(), (
        "the manifests lack these"
    )
    assert {permission for permission in may if not any(permission.covers(one) for one in asked)} == set(), (
        "nothing needs these"
    )


@pytest.mark.parametrize("component", WORK)
async def test_standalones_account_does_the_work_of_every_component(
    component: str, deployed: ApiServer, workloads: str, kubelet: Kubelet
) -> None:
    token = await deployed.token_of(SYSTEM, "standalone")
    asked = await asked_by(WORK[component], deployed, token)
    assert all(any(permission.covers(one) for permission in granted("standalone")) for one in asked)


def only_judged_by_a_real_server(server: ApiServer) -> None:
    if not server.real:
        pytest.skip("the emulator refuses nobody; set KUBEBUILDER_ASSETS to a directory with kube-apiserver and etcd")


ACCOUNTS = [*WORK, "standalone", "node-agent"]


@pytest.mark.parametrize("namespace", [WORKLOADS, SYSTEM, "kube-system"])
@pytest.mark.parametrize("account", ACCOUNTS)
async def test_an_account_may_nothing_else(account: str, namespace: str, deployed: ApiServer) -> None:
    """By the API server's own list of what an account may, less what everybody may who is known."""
    only_judged_by_a_real_server(deployed)
    nobody = await allowed(deployed, await deployed.token_of(namespace, "nobody"), namespace)
    assert {permission.resource for permission in nobody} <= {
        "selfsubjectreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
    }
    found = await allowed(deployed, await deployed.token_of(SYSTEM, account), namespace) - nobody
    expected = {
        Permission(namespace, permission.group, permission.resource, permission.verb)
        for permission in granted(account)
        if permission.namespace in ("", namespace)
    }
    assert found == expected


async def allowed(server: ApiServer, token: str, namespace: str) -> set[Permission]:
    """What a token's owner may do in a namespace."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    async with server.client(token) as client:
        answer = await client.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
    assert not answer["status"]["incomplete"]
    found = set()
    for rule in answer["status"]["resourceRules"]:
        assert rule.get("resourceNames", []) in ([], ["gpu-dev-pod-ending"])
        for group in rule["apiGroups"]:
            found |= {Permission(namespace, group, what, verb) for what in rule["resources"] for verb in rule["verbs"]}
    return found


POD = {
    "metadata": {"name": "intruder"},
    "spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]},
}
REFUSED: list[tuple[str, str, str, JsonObject | None]] = [
    ("api-service", "POST", PODS, POD),
    ("api-service", "DELETE", f"{PODS}/job-x-1-0", None),
    ("api-service", "GET", f"{PODS}", None),
    ("api-service", "GET", "/api/v1/namespaces/kube-system/pods/p/log", None),
    ("api-service", "GET", "/api/v1/namespaces/kube-system/pods/p/exec?command=sh", None),
    ("api-service", "POST", "/api/v1/namespaces/kube-system/pods/p/portforward", None),
    ("ssh-gateway", "GET", f"{PODS}/job-x-1-0/log", None),
    ("ssh-gateway", "POST", PODS, POD),
    ("ssh-gateway", "GET", "/api/v1/namespaces/kube-system/pods/p/exec?command=sh", None),
    ("reservation-processor", "POST", "/api/v1/namespaces/kube-system/pods/p/exec?command=sh", None),
    ("reservation-processor", "POST", f"{PODS}/job-x-1-0/attach", None),
    ("reservation-processor", "GET", f"/api/v1/namespaces/{WORKLOADS}/secrets", None),
    ("reservation-processor", "GET", "/api/v1/pods", None),
    ("reservation-processor", "GET", "/api/v1/nodes", None),
    ("reservation-processor", "DELETE", PODS, None),
    ("reservation-processor", "POST", f"/api/v1/namespaces/{SYSTEM}/pods", POD),
    ("reservation-processor", "POST", "/api/v1/namespaces/default/pods", POD),
    ("reservation-processor", "PATCH", f"{PODS}/job-x-1-0/status", {"status": {"phase": "Failed"}}),
    ("reservation-processor", "POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/node-agent/token", {"spec": {}}),
    ("availability-updater", "GET", "/api/v1/secrets", None),
    ("availability-updater", "PATCH", "/api/v1/nodes/node-a", {"metadata": {"labels": {"a": "b"}}}),
    ("availability-updater", "POST", PODS, POD),
    ("node-agent", "GET", "/api/v1/nodes", None),
    ("node-agent", "DELETE", "/api/v1/nodes/node-a", None),
    ("node-agent", "PATCH", "/api/v1/nodes/node-a/status", {"status": {"capacity": {"nvidia.com/gpu": "9"}}}),
    ("node-agent", "GET", PODS, None),
    ("reservation-expiry", "POST", PODS, POD),
    ("reservation-expiry", "GET", f"/api/v1/namespaces/{WORKLOADS}/secrets", None),
    ("reservation-expiry", "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", None),
    ("reservation-expiry", "GET", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/gpu-scheduler", None),
    ("reservation-expiry", "DELETE", f"{PODS}/job-x-1-0", None),
    ("standalone", "GET", "/api/v1/secrets", None),
]


@pytest.mark.parametrize(("account", "method", "path", "body"), REFUSED)
async def test_is_refused(account: str, method: str, path: str, body: JsonObject | None, deployed: ApiServer) -> None:
    only_judged_by_a_real_server(deployed)
    kind = MERGE if method == "PATCH" else "application/json"
    async with deployed.client(await deployed.token_of(SYSTEM, account)) as client:
        with pytest.raises(ApiAnswerError, match="forbidden") as refusal:
            await client.call(method, path, body, content_type=kind)
    assert refusal.value.code == 403


async def test_the_node_agents_role_is_what_it_asks(deployed: ApiServer, workloads: str, kubelet: Kubelet) -> None:
    token = await token_of_agent_on(deployed, "node-a")
    assert await asked_by(tell_of_a_node, deployed, token) == granted("node-agent")


async def token_of_agent_on(server: ApiServer, node: str) -> str:
    """What the kubelet of a node gives the agent's pod there: a token that names pod and node."""
    if not server.real:
        return await server.token_of(SYSTEM, "node-agent")
    (daemon_set,) = objects("DaemonSet")
    template = daemon_set["spec"]["template"]
    pod = {"metadata": {"name": f"agent-on-{node}"}, "spec": {**template["spec"], "nodeName": node}}
    async with server.client() as client:
        await client.try_call("POST", f"/api/v1/namespaces/{SYSTEM}/pods", pod)
        made = await client.call("GET", f"/api/v1/namespaces/{SYSTEM}/pods/agent-on-{node}")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": f"agent-on-{node}", "uid": made["metadata"]["uid"]}
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound},
        }
        path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/node-agent/token"
        return str((await client.call("POST", path, request))["status"]["token"])


HARMFUL: dict[str, JsonObject] = {
    "a label": {"metadata": {"labels": {"gpu-node-name": "mine"}}},
    "another annotation": {"metadata": {"annotations": {"gpu-dev/gpus": "[]", "other": "b"}}},
    "another's annotation": {"metadata": {"annotations": {"kept": None}}},
    "a changed annotation": {"metadata": {"annotations": {"kept": "no"}}},
    "a cordon": {"spec": {"unschedulable": True}},
    "a taint": {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
    "a finalizer": {"metadata": {"finalizers": ["a.example/b"]}},
    "an owner": {
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "0-0"}]},
    },
}


async def test_the_node_agent_may_write_its_own_nodes_cards_and_no_more(deployed: ApiServer, kubelet: Kubelet) -> None:
    only_judged_by_a_real_server(deployed)
    cards = {"metadata": {"annotations": {"gpu-dev/gpus": "[]", "gpu-dev/gpu-links": "X"}}}
    async with deployed.client() as administrator:
        kept = {"metadata": {"annotations": {"kept": "yes"}}}
        await administrator.call("PATCH", "/api/v1/nodes/node-a", kept, content_type=MERGE)
    async with deployed.client(await token_of_agent_on(deployed, "node-a")) as agent:

        async def refusal(node: str, body: JsonObject) -> str:
            try:
                await agent.call("PATCH", f"/api/v1/nodes/{node}", body, content_type=MERGE)
            except ApiAnswerError as problem:
                if problem.code != 403:
                    raise
                return str(problem)
            return ""

        # A policy counts from a moment after it was written.
        assert "and no other" in await eventually(lambda: refusal("node-b", cards))
        assert await refusal("node-a", cards) == ""
        for name, body in HARMFUL.items():
            assert "and nothing else" in await refusal("node-a", body), name
        gone = {"metadata": {"annotations": {"gpu-dev/gpus": None, "gpu-dev/gpu-links": None}}}
        assert await refusal("node-a", gone) == ""
    async with deployed.client(await deployed.token_of(SYSTEM, "node-agent")) as stolen:
        with pytest.raises(ApiAnswerError, match="and no other"):
            await stolen.call("PATCH", "/api/v1/nodes/node-a", cards, content_type=MERGE)


async def test_a_pod_of_the_node_agent_is_admitted(deployed: ApiServer, kubelet: Kubelet) -> None:
    """By Pod Security, as its namespace enforces it."""
    only_judged_by_a_real_server(deployed)
    assert await token_of_agent_on(deployed, "node-b")
