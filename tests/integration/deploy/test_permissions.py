"""Each component does its work with its own account's token, and that account may do nothing that it doesn't need.

On the emulator, which refuses nobody, the requests that were made are held against the manifests; a real API server
(KUBEBUILDER_ASSETS) judges by itself as well.
"""

from collections.abc import Awaitable, Callable

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.kubernetes.api_server.credentials import Credentials
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.cluster import ClusterRules, KubernetesCluster
from reservation_core.adapters.kubernetes.jobs.foreign_pods import ForeignRules
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules
from reservation_core.adapters.kubernetes.pods.built_pods import PodRules
from reservation_core.adapters.kubernetes.pods.gpu_attaching import GpuPin
from tests.integration.deploy.component_work import POD, PODS, SYSTEM, WORK, WORKLOADS, Installation, tell_of_a_node
from tests.kubernetes.api_client import MERGE, ApiAnswerError, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy
from tests.kubernetes.manifests import objects
from tests.kubernetes.node.kubelet import Kubelet
from tests.kubernetes.permissions import Permission, granted, needed_by
from tests.waiting import eventually


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
