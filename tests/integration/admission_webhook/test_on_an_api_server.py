"""The webhook asked by a real kube-apiserver over TLS: what pods are kept as, and what no failure lets by."""

import asyncio
import base64
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import strategies as st

from pod_scheduling.domain.maps.map_injection import InjectionRules, injection
from pod_scheduling.domain.maps.scheduling_map import map_digest
from reservation_core.adapters.certificates.pairs import Pair
from reservation_core.domain.pods.reviews import Denied, Operation, PodReview
from tests.clusters.pod_strategies import pods, random_pods
from tests.clusters.webhook_registration import registered
from tests.integration.admission_webhook.mapped_pods import EXPECTED, SEED, pod, pods_of, told
from tests.kubernetes.api_client import MERGE, STRATEGIC, ApiAnswerError, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer, make_namespace
from tests.kubernetes.background import Background
from tests.programs.webhook_process import WebhookProcess, new_pair, webhook_process, write_pair
from tests.waiting import eventually

GUIDE = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n"


@pytest.fixture(autouse=True)
def _only_a_real_server_asks(api_server: ApiServer) -> None:
    if not api_server.real:
        pytest.skip("the emulator calls no webhooks; set KUBEBUILDER_ASSETS")


@pytest.fixture(scope="module")
def pair() -> Pair:
    return new_pair()


@pytest.fixture(scope="module")
def webhook(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[WebhookProcess]:
    if not api_server.real:
        pytest.skip("the emulator calls no webhooks; set KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("webhook")
    write_pair(pair, folder)
    assert api_server.process is not None
    with webhook_process(folder, client_ca=api_server.process.webhooks_authority) as webhook:
        yield webhook


@pytest.fixture
async def client(
    api_server: ApiServer, namespace: str, webhook: WebhookProcess, pair: Pair
) -> AsyncIterator[ApiClient]:
    """An administrator's client, while the webhook is registered for the test's namespace."""
    async with registered(api_server, namespace, namespace, webhook.url, [pair]), api_server.client() as client:
        yield client


async def refusal(client: ApiClient, method: str, path: str, body: JsonObject, **more: Any) -> str:
    with pytest.raises(ApiAnswerError) as refused:
        await client.call(method, path, body, **more)
    assert refused.value.code == 403, refused.value
    return str(refused.value)


async def test_the_seeds_five_pods(client: ApiClient, namespace: str) -> None:
    """Made as the StatefulSet controller makes them."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "check", "uid": "u", "controller": True}
    for index, expected in enumerate(EXPECTED):
        given = pod(f"gpu-scheduler-check-{index}")
        given["metadata"] |= {
            "generateName": "gpu-scheduler-check-",
            "ownerReferences": [owner],
            "labels": {"apps.kubernetes.io/pod-index": str(index)},
        }
        kept = await client.call("POST", pods_of(namespace), given)
        assert told(kept) == expected
        assert kept["metadata"]["annotations"]["gpu-dev/map-digest"] == map_digest(SEED)
        assert kept["metadata"]["annotations"]["gpu-dev/map-index"] == str(index)


async def test_the_guides_three_pods(client: ApiClient, namespace: str, webhook: WebhookProcess) -> None:
    for index, text in enumerate(["0=node1:0,1", GUIDE, GUIDE]):
        kept = await client.call("POST", pods_of(namespace), pod(f"webhook-test-{index}", text))
        assert told(kept) == EXPECTED[index]
    said = webhook.text()
    for sentence in (
        "Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)",
        "Injecting CUDA_VISIBLE_DEVICES=2 for pod webhook-test-1 (index 1)",
        "Injecting CUDA_VISIBLE_DEVICES=0,1,2 for pod webhook-test-2 (index 2)",
    ):
        assert sentence in said


async def test_patches_apply_to_whatever_the_server_accepts(client: ApiClient, namespace: str) -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    main = {"name": "main", "image": "busybox"}
    rows: list[JsonObject] = [
        {"containers": [{**main, "env": None}]},
        {"containers": [{**main, "env": []}]},
        {"containers": [{**main, "env": [{"name": "A", "value": "$(CUDA_VISIBLE_DEVICES)"}]}]},
        {"containers": [{**main, "env": [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": secret}]}]},
        {"containers": [{**main, "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "2"}]}]},
        {"containers": [{**main, "envFrom": [{"secretRef": {"name": "s"}}]}]},
        {"containers": [main, {**main, "name": "second"}], "initContainers": [{**main, "name": "first"}]},
        {"containers": [main], "initContainers": [{**main, "name": "side", "restartPolicy": "Always"}]},
        {"containers": [main], "nodeName": "node2"},
    ]
    for row, spec in enumerate(rows):
        given = pod(f"row-{row}", **spec)
        given["metadata"]["annotations"] |= {"a.example.org/b_c.d-e": "~/", "gpu-scheduling-index": "1"}
        assert told(await client.call("POST", pods_of(namespace), given)) == ("node2", "2")
    none = await client.call("POST", pods_of(namespace), pod("none-0", "0=node1:none"))
    assert told(none) == ("node1", "")
    job = pod("", "7=node1:7")
    job["metadata"] |= {"generateName": "job-", "labels": {"batch.kubernetes.io/job-completion-index": "7"}}
    assert told(await client.call("POST", pods_of(namespace), job)) == ("node1", "7")


async def answered(client: ApiClient, namespace: str, body: JsonObject) -> JsonObject | ApiAnswerError:
    """The pod as it would be kept, or the refusal."""
    try:
        return await client.call("POST", pods_of(namespace), body, dryRun="All")
    except ApiAnswerError as problem:
        return problem


async def test_whatever_the_server_accepts_it_accepts_with_the_patch_too(
    api_server: ApiServer, client: ApiClient, namespace: str
) -> None:
    """Asked in a namespace that the webhook isn't asked about, then in one that it is: no patch fails to apply."""
    elsewhere = f"{namespace}-elsewhere"
    await make_namespace(api_server, elsewhere)
    maps = st.sampled_from([SEED, "0=node1:0,1", "0=node1:none 1=node1:1 2=other:0 3=node1:0 4=n:1 5=n:2"])
    came = Counter[str]()
    for listed_pod in random_pods(pods(maps=maps, ours=True), 150):
        alone = await answered(client, elsewhere, listed_pod)
        if isinstance(alone, ApiAnswerError):
            assert alone.code in (400, 422), alone
            came["not a pod"] += 1
            continue
        verdict = injection(PodReview(Operation.CREATE, listed_pod), InjectionRules())
        kept = await answered(client, namespace, listed_pod)
        if isinstance(kept, ApiAnswerError):
            assert isinstance(verdict, Denied), kept
            assert verdict.reason in json.loads(str(kept).partition(": ")[2])["message"]
            came["denied"] += 1
        else:
            assert not isinstance(verdict, Denied), verdict
            told(kept)
            came["told"] += 1
    assert min(came["told"], came["denied"]) > 10, came


async def test_what_is_denied_is_not_kept(client: ApiClient, namespace: str) -> None:
    gpus = [{"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    other = [{"name": "main", "image": "busybox", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "7"}]}]
    for refused, reason in (
        (pod("a-9"), "the map has no entry for index 9"),
        (pod("a-0", "0=node1:0\n0=node2:0"), "line 2: index 0 stands twice"),
        (pod("a"), "the pod has no index"),
        (pod("a-0", containers=gpus), "requests nvidia.com/gpu"),
        (pod("a-0", containers=other), "is '7', and the map says '0,1'"),
        (pod("a-0", nodeName="node9"), "spec.nodeName is 'node9'"),
    ):
        assert reason in await refusal(client, "POST", pods_of(namespace), refused)
    assert (await client.call("GET", pods_of(namespace)))["items"] == []


async def test_who_asked_is_noted_and_nobody_can_say_otherwise(client: ApiClient, namespace: str) -> None:
    given = pod("a-0")
    given["metadata"]["annotations"]["gpu-dev/map-owner"] = "somebody else"
    kept = await client.call("POST", pods_of(namespace), given)
    who = await client.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert kept["metadata"]["annotations"]["gpu-dev/map-owner"] == who["status"]["userInfo"]["username"]
    change = {"metadata": {"annotations": {"gpu-dev/map-owner": "somebody else"}}}
    path = f"{pods_of(namespace)}/a-0"
    assert "can't be changed" in await refusal(client, "PATCH", path, change, content_type=MERGE)


async def test_a_dry_run_is_answered_alike_and_kept_nowhere(client: ApiClient, namespace: str) -> None:
    assert told(await client.call("POST", pods_of(namespace), pod("dry-3"), dryRun="All")) == EXPECTED[3]
    assert (await client.call("GET", pods_of(namespace)))["items"] == []


async def test_what_was_read_stays_and_a_debugging_container_sees_the_same(client: ApiClient, namespace: str) -> None:
    await client.call("POST", pods_of(namespace), pod("a-1"))
    path = f"{pods_of(namespace)}/a-1"
    edit = {"metadata": {"annotations": {"gpu-scheduling-map": "1=node1:0"}}}
    assert "can't be changed" in await refusal(client, "PATCH", path, edit, content_type=MERGE)
    fine = {"metadata": {"annotations": {"mine": "yes"}, "labels": {"mine": "yes"}}}
    assert told(await client.call("PATCH", path, fine, content_type=MERGE)) == ("node2", "2")
    for name in ("debug-1", "debug-2"):
        debug = {"spec": {"ephemeralContainers": [{"name": name, "image": "busybox"}]}}
        after = await client.call("PATCH", f"{path}/ephemeralcontainers", debug, content_type=STRATEGIC)
    assert len(after["spec"]["ephemeralContainers"]) == 2
    for container in after["spec"]["ephemeralContainers"]:
        assert {"name": "CUDA_VISIBLE_DEVICES", "value": "2"} in container["env"]
    greedy = {"name": "all", "image": "busybox", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"}]}
    debug = {"spec": {"ephemeralContainers": [greedy]}}
    assert "is '0,1,2,3'" in await refusal(
        client, "PATCH", f"{path}/ephemeralcontainers", debug, content_type=STRATEGIC
    )


class AddsSidecar(Background):
    """Somebody else's webhook: gives each pod a second container, after ours has been asked."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        super().__init__("somebody else's webhook")
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(*write_pair(pair, folder))
        self.port = 0

    async def _live(self) -> None:
        app = web.Application()
        app.router.add_post("/mutate", self._mutate)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._context)
        try:
            await site.start()
            self.port = runner.addresses[0][1]
            self._is_up()
            await asyncio.get_running_loop().create_future()
        finally:
            await runner.cleanup()

    async def _mutate(self, request: web.Request) -> web.Response:
        review = await request.json()
        response = {"uid": review["request"]["uid"], "allowed": True}
        if len(review["request"]["object"]["spec"]["containers"]) == 1:
            sidecar = {"name": "sidecar", "image": "busybox"}
            patch = json.dumps([{"op": "add", "path": "/spec/containers/-", "value": sidecar}])
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
        return web.json_response({**review, "request": None, "response": response})


async def test_containers_that_others_add_later_are_told_as_well(
    api_server: ApiServer, client: ApiClient, namespace: str, tmp_path: Path
) -> None:
    """`reinvocationPolicy: IfNeeded`: the server asks again when another webhook has changed the pod."""
    pair = new_pair()
    with AddsSidecar(pair, tmp_path) as other:
        url, name = (
            f"https://127.0.0.1:{other.port}",
            f"{namespace}-z",
        )  # webhooks are asked in the order of their names
        async with registered(api_server, name, namespace, url, [pair], conditions=False):

            async def with_sidecar() -> JsonObject | None:
                kept = await client.call("POST", pods_of(namespace), pod("a-1"), dryRun="All")
                return kept if len(kept["spec"]["containers"]) == 2 else None

            assert told(await eventually(with_sidecar)) == ("node2", "2")
