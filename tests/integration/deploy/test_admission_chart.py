"""The chart gpu-admission on a real API server: what it makes, keeps and allows, and pods bound as it has it set up."""

import asyncio
import base64
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gpu_admission.flags.options import applied, read_options
from pod_scheduling.runtime.extender import run_extender
from pod_scheduling.runtime.settings.admission import AdmissionSettings
from reservation_core.adapters.certificates.pairs import read_serving
from tests.clusters.card_cluster import card_pod, container
from tests.integration.deploy.admission_work import NamedQuotas, work
from tests.integration.deploy.installed_charts import allowed_there, installed
from tests.kubernetes.api_client import ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fault_proxy import FaultProxy
from tests.kubernetes.permissions import Permission, needed
from tests.kubernetes.real.kube_scheduler import kube_scheduler_of, started_kube_scheduler
from tests.programs.ports import own_port
from tests.read_yaml import read_yaml
from tests.waiting import eventually

NAME = "gpu-admission"
SYSTEM = "chart-admission"
SCHEDULER = "gpu-quota-scheduler"
PATIENCE_S = 120
BESIDE: dict[str, Any] = {"namespace": SYSTEM, "priorityClassName": ""}
SERVED: dict[str, Any] = {**BESIDE, "scheduler": {"beside": False}, "tls": {"enabled": True}}
BINDING_ALL: dict[str, Any] = {**BESIDE, "scheduler": {"bind": "all"}}
VOLCANO: dict[str, Any] = {**BESIDE, "scheduler": {"enabled": False}, "extender": {"assumeAt": "filter"}}
LEASES = {Permission(SYSTEM, "coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")}

pytestmark = pytest.mark.timeout(600)


async def extender_there(client: ApiClient) -> JsonObject:
    """The extender's container as the chart has made it."""
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{NAME}"
    containers = (await client.call("GET", path))["spec"]["template"]["spec"]["containers"]
    (found,) = [listed_container for listed_container in containers if listed_container["name"] == NAME]
    assert isinstance(found, dict)
    return found


def variables(container: JsonObject) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container["env"]}


def seen(proxy: FaultProxy) -> set[Permission]:
    """What was asked through a proxy needed."""
    return {each for request in proxy.requests if (each := needed(request.method, request.path)) is not None}


@pytest.mark.parametrize(
    ("values", "binds", "marks"),
    [(BESIDE, True, True), (SERVED, True, True), (BINDING_ALL, True, False), (VOLCANO, False, True)],
    ids=["beside", "served", "binding all", "volcano"],
)
async def test_the_extender_may_what_it_asks_and_nothing_else(
    api_server: ApiServer,
    namespace: str,
    values: dict[str, Any],
    binds: bool,
    marks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with installed(api_server, NAME, SYSTEM, values), api_server.client() as client:
        made = await extender_there(client)
        for name, value in variables(made).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("GPU_DEV_ADMISSION__ASSUMED_S", "1")
        settings = applied(read_options(made["command"][3:]), AdmissionSettings())
        may = await allowed_there(client, NAME, SYSTEM)
        cards = NamedQuotas(client, namespace)
        try:
            with FaultProxy(api_server) as proxy:
                kubeconfig = proxy.kubeconfig(await api_server.token_of(SYSTEM, NAME), "chart-extender")
                kubernetes = settings.kubernetes.model_copy(update={"kubeconfig": kubeconfig})
                await cards.put_quotas({})
                async with run_extender(settings.model_copy(update={"kubernetes": kubernetes})) as running:
                    await work(running, cards, binds=binds, marks=marks)
                await eventually(lambda: proxy.cut_watches() == 0)
                asked = seen(proxy)
                refused = [request for request in proxy.requests if request.code == 403]
        finally:
            await cards.clean_up()
            await client.try_call("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{NAME}", {})
        assert refused == []
        assert {one for one in asked if not any(permission.covers(one) for permission in may)} == set()
        # The lease in the extender's own pods is its kube-scheduler's.
        unused = {permission for permission in may if not any(permission.covers(one) for one in asked)}
        assert unused == (set() if values in (SERVED, VOLCANO) else LEASES)


async def test_pods_are_bound_by_the_kube_scheduler_and_the_extender_as_they_are_set_up(
    api_server: ApiServer, namespace: str, tmp_path: Path
) -> None:
    program = kube_scheduler_of(api_server)
    if program is None:
        pytest.skip("KUBEBUILDER_ASSETS names no kube-scheduler")
    extender_port, scheduler_port = own_port(), own_port()
    values = {**BESIDE, "extender": {"port": extender_port}, "quotas": {namespace: {"quota": {"H100": 2}}}}
    async with installed(api_server, NAME, SYSTEM, values), api_server.client() as client:
        account = await api_server.token_of(SYSTEM, NAME)
        made = await extender_there(client)
        probe = made["readinessProbe"]["exec"]["command"]
        path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{SCHEDULER}-config"
        config = read_yaml((await client.call("GET", path))["data"]["gpu-scheduler-config.yaml"])
        cards = NamedQuotas(client, namespace)
        node, plain = await cards.add_node(shared=2, memory=8), await cards.add_node(gpus=1)
        kubeconfig = api_server.kubeconfig_with(account, "chart-account")
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump({**config, "clientConnection": {"kubeconfig": str(kubeconfig)}}))
        log = api_server.folder / "kube-scheduler.log"
        before = log.stat().st_size if log.exists() else 0
        extender = await asyncio.create_subprocess_exec(
            sys.executable, *made["command"][1:], "--kubeconfig", str(kubeconfig), "--pprofAddress", "",
            env={"PATH": os.environ["PATH"], **variables(made)},
        )  # fmt: skip
        try:
            await eventually(lambda: answers(probe), PATIENCE_S)
            with started_kube_scheduler(api_server, program, file, account=kubeconfig, port=scheduler_port):
                for name in ("first", "second"):
                    await cards.add(card_pod(name, container(core=50), schedulerName=SCHEDULER))
                await cards.add(card_pod("whole", container(gpu=1), schedulerName=SCHEDULER))
                await eventually(lambda: all_bound(cards, 3), PATIENCE_S)
                await cards.add(card_pod("third", container(core=50), schedulerName=SCHEDULER))
                await eventually(lambda: told(cards, "third", "2 of 2 H100 used"), PATIENCE_S)
                await cards.put_quotas({namespace: {"quota": {"H100": 3}}})  # it is nudged, as its account allows
                await eventually(lambda: all_bound(cards, 4), PATIENCE_S)
                assert await well(scheduler_port)
                lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{SCHEDULER}"
                assert (await client.call("GET", lease))["spec"]["holderIdentity"]
        finally:
            extender.terminate()
            code = await extender.wait()
        bound, by_node = await cards.bound(), await cards.cards_by_node()
        await cards.clean_up()
        assert code == 0
        assert bound == {"first": node, "second": node, "third": node, "whole": plain}
        assert sum(by_node[node].values()) == 1500
        assert "forbidden" not in log.read_bytes()[before:].decode()


async def answers(probe: list[str]) -> bool:
    """What the kubelet runs in the container."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *probe[1:], stderr=asyncio.subprocess.DEVNULL, env={"PATH": os.environ["PATH"]}
    )
    return await process.wait() == 0


async def well(port: int) -> bool:
    """What the kubelet asks kube-scheduler, which vouches for itself."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    async with httpx.AsyncClient(verify=unverified, trust_env=False, timeout=60) as asked:
        return (await asked.get(f"https://127.0.0.1:{port}/healthz")).status_code == 200


async def all_bound(cards: NamedQuotas, count: int) -> bool:
    return len(await cards.bound()) == count


async def told(cards: NamedQuotas, name: str, words: str) -> bool:
    conditions = (await cards.read(name))["status"].get("conditions") or []
    return any(words in str(condition.get("message")) for condition in conditions)


async def test_an_upgrade_keeps_the_certificate_and_who_believes_in_it(api_server: ApiServer) -> None:
    async with installed(api_server, NAME, SYSTEM, SERVED) as upgrade, api_server.client() as client:

        async def certificates() -> tuple[dict[str, str], str]:
            secret = await client.call("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/{NAME}-tls")
            config = await client.call("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps/{SCHEDULER}-config")
            extenders = read_yaml(config["data"]["gpu-scheduler-config.yaml"])["extenders"]
            (authority,) = {extender["tlsConfig"]["caData"] for extender in extenders}
            return secret["data"], authority

        before = await certificates()
        assert before[0]["ca.crt"] == before[1]
        await upgrade({"replicaCount": 3})
        assert await certificates() == before
        certificate, authority = (base64.b64decode(before[0][name]) for name in ("tls.crt", "ca.crt"))
        assert f"{NAME}.{SYSTEM}" in read_serving(certificate, authority).names
