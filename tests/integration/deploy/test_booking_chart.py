"""The chart gpu-booking on a real API server: what it makes, whom it asks, what holds while nobody answers."""

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from reservation_core.adapters.certificates.pairs import read_serving
from tests.clusters.webhook_registration import ENFORCED_LABEL, bundle
from tests.integration.deploy.installed_charts import Upgrade, installed
from tests.kubernetes.api_client import MERGE, STRATEGIC, ApiAnswerError, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.programs.webhook_process import new_pair, webhook_process, write_pair
from tests.waiting import eventually

SYSTEM = "gpu-booking"
NAME = "gpu-booking-webhook"
JOB = "gpu-booking-certificates"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
VALUES = {"apiUrl": "https://gpu-dev.test/v1/schedulability", "apiToken": "secret-token"}

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
async def upgrade(api_server: ApiServer) -> AsyncIterator[Upgrade]:
    """The chart, installed; what is called upgrades it with these values."""
    async with installed(api_server, SYSTEM, SYSTEM, VALUES) as upgrade:
        yield upgrade


@pytest.fixture
async def enforced(api_server: ApiServer, namespace: str) -> AsyncIterator[ApiClient]:
    """An administrator's client; bookings are enforced in the test's namespace."""
    async with api_server.client() as client:
        label = {"metadata": {"labels": {ENFORCED_LABEL: "true"}}}
        await client.call("PATCH", f"/api/v1/namespaces/{namespace}", label, content_type=MERGE)
        yield client


async def certificates(client: ApiClient) -> tuple[dict[str, str], str]:
    secret = await client.call("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/{NAME}-tls")
    webhook = await client.call("GET", f"{ADMISSION}/mutatingwebhookconfigurations/{NAME}")
    return secret["data"], webhook["webhooks"][0]["clientConfig"]["caBundle"]


async def refusal(client: ApiClient, method: str, path: str, body: JsonObject, **more: Any) -> str:
    """The answer to a request that must be refused; empty where it is allowed."""
    try:
        await client.call(method, path, body, **more)
    except ApiAnswerError as problem:
        return str(problem)
    return ""


def pod(name: str, gpus: int = 0, **more: Any) -> JsonObject:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    return {"metadata": {"name": name, **more.pop("metadata", {})}, "spec": {"containers": [container | more]}}


async def test_an_upgrade_keeps_the_authority_and_the_seeds_patch_changes_nothing(
    api_server: ApiServer, upgrade: Upgrade
) -> None:
    async with api_server.client() as client:
        before = await certificates(client)
        assert before[0]["ca.crt"] == before[1]
        await upgrade({"replicaCount": 3, "unbooked": "preemptible"})
        assert await certificates(client) == before
        path = f"{ADMISSION}/mutatingwebhookconfigurations/{NAME}"
        by_hand = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": before[0]["ca.crt"]}]
        await client.call("PATCH", path, by_hand, content_type="application/json-patch+json")
        assert await certificates(client) == before


async def test_labelled_namespaces_are_asked_about_and_only_what_matters_waits_for_an_answer(
    api_server: ApiServer, namespace: str, upgrade: Upgrade, enforced: ApiClient, tmp_path: Path
) -> None:
    del upgrade
    elsewhere = f"{namespace}-elsewhere"
    await make_namespace(api_server, elsewhere)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pair = new_pair()
    write_pair(pair, tmp_path)
    settings = {"ENFORCE_BOOKINGS": "true", "API_URL": "http://127.0.0.1:1/v1/schedulability", "API_TOKEN": "t"}
    with webhook_process(
        tmp_path, **{f"GPU_DEV_WEBHOOK__{name}": value for name, value in settings.items()}
    ) as webhook:
        path = f"{ADMISSION}/mutatingwebhookconfigurations/{NAME}"
        configuration = await enforced.call("GET", path)
        # As the chart has it, but for where it is: nothing leads to Services here.
        configuration["webhooks"][0]["clientConfig"] = {"url": f"{webhook.url}/enforce", "caBundle": bundle([pair])}
        await enforced.call("PUT", path, configuration)

        # An administrator's name begins with `system:` or is nobody's: either is said by the webhook alone.
        await eventually(lambda: _answered(enforced, pods))
        await enforced.call("POST", pods, pod("plain"))
        assert await refusal(enforced, "POST", f"/api/v1/namespaces/{elsewhere}/pods", pod("gpus", 1)) == ""
    one = f"{pods}/plain"
    assert "failed calling webhook" in await refusal(enforced, "POST", pods, pod("another"))
    labels = {"metadata": {"labels": {"mine": "yes"}, "annotations": {"mine": "yes"}}}
    assert await refusal(enforced, "PATCH", one, labels, content_type=MERGE) == ""
    mark = {"metadata": {"annotations": {"gpu-dev/owner": "me"}}}
    assert "failed calling webhook" in await refusal(enforced, "PATCH", one, mark, content_type=MERGE)
    debug = {"spec": {"ephemeralContainers": [{"name": "x", "image": "busybox"}]}}
    path = f"{one}/ephemeralcontainers"
    assert "failed calling webhook" in await refusal(enforced, "PATCH", path, debug, content_type=STRATEGIC)


async def _answered(client: ApiClient, pods: str) -> bool:
    """Whether the webhook has answered: what it says of GPUs while nobody can say who has booked."""
    said = await refusal(client, "POST", f"{pods}?dryRun=All", pod("gpus", 1))
    return "nobody can say now" in said or "nobody has said whose pods" in said


CARDS = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
ROWS: dict[str, tuple[JsonObject, str]] = {
    "GPUs and nobody's": (pod("a", 1), "Nobody has said whose"),
    "a part of a card": (
        pod("a", resources={"limits": {"nvidia.com/mig-1g.10gb": "1"}}), "Nobody has said whose"
    ),
    "all cards by a variable": (pod("a", **CARDS), "nobody has counted"),
    "all cards beside one's own": (
        pod("a", 1, metadata={"annotations": {"gpu-dev/owner": "ann"}}, **CARDS), "nobody has counted"
    ),
    "another device": (pod("a", metadata={"annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0"}}), "asks for devices"),
}  # fmt: skip


async def test_the_static_rules_hold_without_the_webhook(namespace: str, upgrade: Upgrade, enforced: ApiClient) -> None:
    del upgrade
    await enforced.call("DELETE", f"{ADMISSION}/mutatingwebhookconfigurations/{NAME}")
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async def policy_is_there() -> bool:
        return "nobody has counted" in await refusal(enforced, "POST", f"{pods}?dryRun=All", pod("a", **CARDS))

    await eventually(policy_is_there)
    for name, (given, said) in ROWS.items():
        assert said in await refusal(enforced, "POST", f"{pods}?dryRun=All", given), name
    claims = pod("claims")
    claims["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
    assert "can't be compared" in await refusal(enforced, "POST", f"{pods}?dryRun=All", claims)
    hidden = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    marked = {"annotations": {"gpu-dev/owner": "ann", "gpu-dev/terminate-at": "2026-11-21T14:00:00Z"}}
    await enforced.call("POST", pods, pod("fine", 1, metadata=marked, **hidden))
    await enforced.call("POST", pods, pod("plain"))
    for value, refused in (("all", "nobody has counted"), (None, "its map's GPUs alone"), ("2,3", None)):
        own = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]} if value else {}
        mapped = pod(
            "mapped-0", metadata={"annotations": {**marked["annotations"], "gpu-dev/map-devices": "2,3"}}, **own
        )
        mapped["spec"]["schedulerName"] = "gpu-scheduler"
        if refused is None:
            await enforced.call("POST", pods, mapped)
        else:
            assert refused in await refusal(enforced, "POST", pods, mapped)
    debugging = {"spec": {"ephemeralContainers": [{"name": "x", "image": "busybox", "env": CARDS["env"]}]}}
    path = f"{pods}/mapped-0/ephemeralcontainers"
    for variables in ([], CARDS["env"]):
        debugging["spec"]["ephemeralContainers"][0]["env"] = variables
        assert "debugging container" in await refusal(enforced, "PATCH", path, debugging, content_type=STRATEGIC)
    debugging["spec"]["ephemeralContainers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "2,3"}]
    await enforced.call("PATCH", path, debugging, content_type=STRATEGIC)
    for value in (None, "2099-01-01T00:00:00Z"):
        change = {"metadata": {"annotations": {"gpu-dev/terminate-at": value}}}
        for path in (f"{pods}/fine", f"{pods}/fine/status"):
            assert "can't be changed" in await refusal(enforced, "PATCH", path, change, content_type=MERGE)
    regiven = {"metadata": {"annotations": {"gpu-dev/map-devices": "0,1"}}}
    assert "can't be changed" in await refusal(enforced, "PATCH", f"{pods}/mapped-0", regiven, content_type=MERGE)
    other = {"metadata": {"annotations": {"mine": "yes"}}}
    assert await refusal(enforced, "PATCH", f"{pods}/fine", other, content_type=MERGE) == ""
    as_kubelets_do = {"status": {"phase": "Running"}}
    assert await refusal(enforced, "PATCH", f"{pods}/fine/status", as_kubelets_do, content_type=MERGE) == ""
    for env, said in ((CARDS, "debugging container"), (hidden, "")):
        debug = {"spec": {"ephemeralContainers": [{"name": "x", "image": "busybox", **env}]}}
        path = f"{pods}/plain/ephemeralcontainers"
        assert said in (told := await refusal(enforced, "PATCH", path, debug, content_type=STRATEGIC))
        assert bool(told) == bool(said)


async def renew(kubeconfig: Path, command: list[str]) -> tuple[int, str]:
    """Run what the CronJob runs, as who it runs as; its exit code and what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command[1:], "--kubeconfig", str(kubeconfig),
        stderr=asyncio.subprocess.PIPE, env={**environment, "GPU_DEV_KUBERNETES__CALL_LIMIT_S": "10"},
    )  # fmt: skip
    _, said = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_the_job_makes_a_deleted_secret_anew_and_reads_no_other(api_server: ApiServer, upgrade: Upgrade) -> None:
    del upgrade
    secrets = f"/api/v1/namespaces/{SYSTEM}/secrets"
    token = await api_server.token_of(SYSTEM, JOB)
    kubeconfig = api_server.kubeconfig_with(token, "certificates-job")
    async with api_server.client() as client, api_server.client(token) as job:
        cron = await client.call("GET", f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{JOB}")
        command = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]
        before = await certificates(client)
        assert await renew(kubeconfig, command) == (0, "")
        assert await certificates(client) == before

        async def gone() -> None:
            await client.call("DELETE", f"{secrets}/{NAME}-tls")

        await gone()
        code, said = await renew(kubeconfig, command)
        assert code == 0, said
        data, trusted = await certificates(client)
        assert trusted == data["ca.crt"]
        serving = read_serving(base64.b64decode(data["tls.crt"]), base64.b64decode(data["ca.crt"]))
        assert f"{NAME}.{SYSTEM}.svc" in serving.names
        # What replicas serve until their volumes follow is trusted still.
        assert read_serving(base64.b64decode(before[0]["tls.crt"]), base64.b64decode(trusted)).authority
        for path in (secrets, f"{secrets}/{NAME}-token", "/api/v1/namespaces/kube-system/secrets/x"):
            assert "403" in await refusal(job, "GET", path, {}), path
        elsewhere = {"metadata": {"name": "mine"}}
        assert "403" in await refusal(job, "POST", "/api/v1/namespaces/default/secrets", elsewhere)
        for kind in (f"{RBAC}/clusterroles/{JOB}", f"{RBAC}/namespaces/{SYSTEM}/roles/{JOB}"):
            whole = (await client.call("GET", kind))["rules"]
            for number, rule in enumerate(whole):
                await client.call("PATCH", kind, {"rules": whole[:number] + whole[number + 1 :]}, content_type=MERGE)
                await gone()

                async def refused() -> bool:  # the server learns of roles a little later
                    code, said = await renew(kubeconfig, command)
                    return code != 0 and "forbidden" in said

                await eventually(refused)
                await client.call("PATCH", kind, {"rules": whole}, content_type=MERGE)

                async def done() -> bool:
                    return (await renew(kubeconfig, command))[0] == 0

                await eventually(done)
                assert await client.call("GET", f"{secrets}/{NAME}-tls"), rule
