"""The chart gpu-scheduler installed on a real API server: what it makes, keeps, denies and allows."""

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.integration.deploy.installed_charts import Upgrade, installed
from tests.integration.gpu_scheduler.conftest import Cluster, Process, admitted, pod, running
from tests.kubernetes.api_client import ApiClient
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy, Harm
from tests.waiting import eventually

SYSTEM = "gpu-scheduler-system"
NAME = "gpu-scheduler"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
async def upgrade(api_server: ApiServer) -> AsyncIterator[Upgrade]:
    """The chart, installed; what is called upgrades it with these values."""
    async with installed(api_server, NAME, SYSTEM) as upgrade:
        yield upgrade


async def _certificates(client: ApiClient) -> tuple[dict[str, str], str]:
    secret = await client.call("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/{NAME}-webhook-tls")
    webhook = await client.call("GET", f"{ADMISSION}/mutatingwebhookconfigurations/{NAME}-webhook")
    return secret["data"], webhook["webhooks"][0]["clientConfig"]["caBundle"]


async def test_an_upgrade_keeps_the_authority(api_server: ApiServer, upgrade: Upgrade) -> None:
    async with api_server.client() as client:
        before = await _certificates(client)
        assert before[0]["ca.crt"] == before[1]
        await upgrade({"replicaCount": 3})
        assert await _certificates(client) == before


def _pod(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    made = copy.deepcopy(admitted(pod("row-0", "0=node1:0")))
    change(made)
    return made


def _container(made: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = made["spec"]["containers"][0]
    return container


def _given_its_cards(made: dict[str, Any], given: str = "1") -> None:
    """The map's card 1 is the container's only one, and its number 0 there."""
    made["metadata"]["annotations"]["gpu-dev/map-devices"] = "1"
    own = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": given}, {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]
    _container(made).update(env=own)


ROWS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no digest": lambda made: made["metadata"]["annotations"].pop("gpu-dev/map-digest"),
    "no variable": lambda made: _container(made).pop("env"),
    "another value": lambda made: _container(made).update(env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "1"}]),
    "others than it was given": lambda made: _given_its_cards(made, "2"),
    "GPUs": lambda made: _container(made).update(resources={"limits": {"nvidia.com/gpu": "1"}}),
    "claims": lambda made: made["spec"].update(resourceClaims=[{"name": "a", "resourceClaimName": "b"}]),
    "another node": lambda made: made["spec"].update(nodeName="node2"),
    "a bare init container": lambda made: made["spec"].update(initContainers=[{"name": "i", "image": "i"}]),
}


async def test_the_static_rules_hold_without_the_webhook(
    api_server: ApiServer, namespace: str, upgrade: Upgrade
) -> None:
    del upgrade
    async with api_server.client() as client:
        await client.call("DELETE", f"{ADMISSION}/mutatingwebhookconfigurations/{NAME}-webhook")
        path = f"/api/v1/namespaces/{namespace}/pods"

        async def denied(change: Callable[[dict[str, Any]], object]) -> str | None:
            try:
                await client.call("POST", f"{path}?dryRun=All", _pod(change))
            except Exception as error:  # noqa: BLE001 -- what it is, is looked at
                return str(error)
            return None

        async def policy_is_there() -> bool:
            return "denied" in str(await denied(ROWS["no variable"]))

        await eventually(policy_is_there)
        for name, change in ROWS.items():
            assert "ValidatingAdmissionPolicy" in str(await denied(change)), name
        await client.call("POST", f"{path}?dryRun=All", _pod(_given_its_cards))
        await client.call("POST", path, _pod(lambda made: None))
        edit = {"metadata": {"annotations": {"gpu-scheduling-map": "0=node2:0"}}}
        for where in ("row-0", "row-0/status"):
            with pytest.raises(Exception, match="ValidatingAdmissionPolicy"):
                await client.call("PATCH", f"{path}/{where}", edit, content_type=MERGE)
        await client.call("PATCH", f"{path}/row-0/status", {"status": {"phase": "Running"}}, content_type=MERGE)
        other = {"metadata": {"annotations": {"other": "0=node2:0"}}}
        await client.call("PATCH", f"{path}/row-0", other, content_type=MERGE)


async def test_the_scheduler_may_do_what_it_does_and_needs_each_rule(
    api_server: ApiServer, namespace: str, upgrade: Upgrade, fault_proxy: FaultProxy
) -> None:
    del upgrade
    kubeconfig = fault_proxy.kubeconfig(await api_server.token_of(SYSTEM, NAME), "scheduler")
    async with api_server.client() as client:
        await client.call("DELETE", f"{ADMISSION}/mutatingwebhookconfigurations/{NAME}-webhook")
        cluster = Cluster(client, namespace, f"rbac-{namespace[-6:]}")
        name = await cluster.add_node("node1")
        numbers = iter(range(1000))

        async def work(process: Process) -> None:
            """Everything that it does, or fails to: one is bound whose answer was lost, and one is told why not."""
            del process
            number = next(numbers)
            fault_proxy.inject(Harm.ANSWER, "POST", "/binding", code=409, times=1)
            await cluster.add(admitted(pod(f"go-{number}", f"{number}=node1:none")))
            await cluster.add(admitted(pod(f"stay-{number}", f"{number}=nowhere:0")))

        def refused(process: Process) -> list[str]:
            return [line for line in process.output if "forbidden" in line.lower() or " 403 " in line]

        async with running(kubeconfig, SYSTEM) as start:
            process = await start()
            await eventually(process.leading)
            await work(process)
            await cluster.eventually_on("go-0", name)
            await cluster.eventually_told("stay-0", "NoSuchNode")
            await eventually(
                lambda: len([request for request in fault_proxy.requests if "/leases/" in request.path]) > 5
            )
            assert refused(process) == []
        for kind in (f"{RBAC}/clusterroles/{NAME}", f"{RBAC}/namespaces/{SYSTEM}/roles/{NAME}"):
            whole = (await client.call("GET", kind))["rules"]
            for number, rule in enumerate(whole):
                if rule == {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}:
                    await client.call("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{NAME}")
                without = [*whole[:number], *whole[number + 1 :]]
                await client.call("PATCH", kind, {"rules": without}, content_type=MERGE)
                async with running(kubeconfig, SYSTEM) as start:
                    process = await start(wait=False)
                    await work(process)
                    await eventually(lambda process=process: refused(process))  # type: ignore[misc]
                await client.call("PATCH", kind, {"rules": whole}, content_type=MERGE)
        await client.try_call("DELETE", f"/api/v1/nodes/{name}", {})
