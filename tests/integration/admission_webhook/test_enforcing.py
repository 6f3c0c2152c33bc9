"""Bookings enforced: the webhook asks a real control plane, or something that does not answer as it should."""

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonpatch
import pytest
from aiohttp import web

from reservation_core.adapters.certificates.pairs import Pair
from reservation_core.runtime.wiring import Runtime
from tests.integration.admission_webhook.control_plane import NOBODY_CAN_SAY, PATIENCE_S, ControlPlane, control_plane
from tests.network.receivers import Receiver, receiving
from tests.programs.prepared_processes import ran
from tests.programs.webhook_process import (
    WebhookProcess,
    admission_review,
    new_pair,
    trusting,
    webhook_process,
    write_pair,
)
from tests.waiting import eventually

OWNERS = {
    "users": {"system:serviceaccount:ci:runner": "cyd"},
    "prefixes": ["oidc:"],
    "namespaces": {"vision": "ann@lab.org"},
}
SEES_ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
FORGED = {
    "gpu-dev/terminate-at": "2099-01-01T00:00:00Z",
    "gpu-dev/booking": "bkg-9",
    "gpu-dev/owner": "ann@lab.org",
    "gpu-dev/preemptible": "false",
}
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
API_TIMEOUT_S = 30
"""How long the webhook waits for the service. No review does: it is answered long before (0.15 s)."""


@pytest.fixture(scope="module")
def pair() -> Pair:
    return new_pair()


@pytest.fixture
async def control(runtime: Runtime) -> AsyncIterator[ControlPlane]:
    async with control_plane(runtime) as control:
        yield control


@contextmanager
def enforcing(folder: Path, pair: Pair, api_url: str, token: str = "t", **settings: str) -> Iterator[WebhookProcess]:
    """A webhook that asks at `api_url`."""
    write_pair(pair, folder)
    (folder / "owners.yaml").write_text(json.dumps(OWNERS))  # JSON is YAML
    (folder / "token").write_text(f"{token}\n")
    given = {
        "ENFORCE_BOOKINGS": "true",
        "API_URL": api_url,
        "API_TOKEN_FILE": str(folder / "token"),
        "OWNERS_FILE": str(folder / "owners.yaml"),
        "OWNERS_LOOK_S": "0.05",
    } | settings
    with webhook_process(folder, **{f"GPU_DEV_WEBHOOK__{name}": value for name, value in given.items()}) as webhook:
        yield webhook


def pod(gpus: int = 1, product: str | None = "NVIDIA-H100-80GB-HBM3", **metadata: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "busybox"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    selector = {} if product is None else {"nodeSelector": {"nvidia.com/gpu.product": product}}
    return {"metadata": {"name": "notebook", **metadata}, "spec": {"containers": [container], **selector}}


class Asking:
    """Asks a webhook as the API server does; with `patience_s` again for so long while nobody can say."""

    def __init__(self, webhook: WebhookProcess, client: httpx.AsyncClient, patience_s: float) -> None:
        self.webhook = webhook
        self._client = client
        self._patience_s = patience_s

    async def __call__(
        self, body: dict[str, Any], user: str = "oidc:ann@lab.org", path: str = "/enforce", **more: Any
    ) -> dict[str, Any]:
        """The response."""
        review = admission_review(body, userInfo={"username": user}, **{"namespace": "lab", **more})
        deadline = time.monotonic() + self._patience_s
        while True:
            answer = await self._client.post(path, json=review)
            assert answer.status_code == 200, answer.text
            response = dict(answer.json()["response"])
            told = (response.get("status") or {}).get("message", "")
            if not told.startswith(NOBODY_CAN_SAY) or time.monotonic() > deadline:
                return response

    async def marks(self, body: dict[str, Any], user: str = "oidc:ann@lab.org", **more: Any) -> dict[str, str]:
        """The annotations of a pod that is let by."""
        response = await self(body, user, **more)
        assert response["allowed"], response
        kept = body
        if "patch" in response:
            kept = jsonpatch.apply_patch(body, json.loads(base64.b64decode(response["patch"])))
        return dict(kept["metadata"].get("annotations") or {})

    async def refusal(self, body: dict[str, Any], user: str = "oidc:ann@lab.org", **more: Any) -> str:
        """Why a pod is not let by."""
        response = await self(body, user, **more)
        assert not response["allowed"], response
        return str(response["status"]["message"])

    async def counted(self, name: str) -> float:
        """A metric's value."""
        lines = (await self._client.get("/metrics")).text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@asynccontextmanager
async def asking(webhook: WebhookProcess, pair: Pair, patience_s: float = 0) -> AsyncIterator[Asking]:
    async with httpx.AsyncClient(
        base_url=webhook.url, verify=trusting(pair), trust_env=False, timeout=PATIENCE_S
    ) as client:
        yield Asking(webhook, client, patience_s)


@pytest.fixture
async def ask(control: ControlPlane, tmp_path: Path, pair: Pair) -> AsyncIterator[Asking]:
    """Of a webhook that asks our own control plane."""
    url = f"{control.url}/v1/schedulability"
    with enforcing(tmp_path, pair, url, control.tokens["gate"], FRESH_S="0.2") as webhook:
        async with asking(webhook, pair, PATIENCE_S) as ask:
            yield ask


# --- With a control plane that answers.


async def test_who_has_booked_gets_the_end_and_loses_what_was_forged(ask: Asking, control: ControlPlane) -> None:
    booking = await control.book("ann@lab.org", gpus=2, gpu_type="h100")
    end = booking["end"].replace(".000Z", "Z")
    expected = {"gpu-dev/owner": "ann@lab.org", "gpu-dev/booking": booking["id"], "gpu-dev/terminate-at": end}
    for body in (pod(2), pod(1), pod(1, None), pod(2, annotations={**FORGED}), pod(1, annotations={"mine": "1"})):
        for more in ({}, {"dryRun": True}):
            kept = await ask.marks(body, **more)
            assert kept == expected | ({"mine": "1"} if "mine" in (body["metadata"].get("annotations") or {}) else {})
    assert await ask(pod(2), path="/mutate") == {"uid": "an-uid", "allowed": True}
    assert f"Admitting a pod of ann@lab.org until {end}" in ask.webhook.events()


async def test_who_has_not_booked_so_much_or_of_that_kind_is_told_what_to_do(
    ask: Asking, control: ControlPlane
) -> None:
    await control.book("ann@lab.org", gpus=2, gpu_type="h100")
    for body, user in (
        (pod(3), "oidc:ann@lab.org"),
        (pod(1, "Tesla-T4"), "oidc:ann@lab.org"),
        (pod(1), "oidc:bob"),
        (pod(1), "system:serviceaccount:ci:runner"),
        (pod(1, annotations={**FORGED}), "oidc:bob"),
        (pod(1), "oidc:nobody"),
    ):
        assert "gpu-dev book create" in await ask.refusal(body, user)
    for stranger in ("ann@lab.org", "system:serviceaccount:lab:default", CONTROLLER, ""):
        assert "ask an administrator" in await ask.refusal(pod(1), stranger)
    assert await ask(pod(0), "stranger") == {"uid": "an-uid", "allowed": True}


async def test_a_controllers_pods_are_of_whoever_the_namespace_belongs_to(
    ask: Asking, control: ControlPlane, tmp_path: Path
) -> None:
    await control.book("ann@lab.org", gpus=2, gpu_type="h100")
    kept = await ask.marks(pod(2), CONTROLLER, namespace="vision")
    assert kept["gpu-dev/owner"] == "ann@lab.org"
    assert "ask an administrator" in await ask.refusal(pod(2), CONTROLLER, namespace="other")
    owners = tmp_path / "owners.yaml"
    owners.write_text("namespaces: [")
    await eventually(lambda: "owners_file_unusable" in ask.webhook.events())
    assert await ask.counted("gpu_dev_webhook_owners_file_usable") == 0
    assert (await ask.marks(pod(2), CONTROLLER, namespace="vision"))["gpu-dev/owner"] == "ann@lab.org"
    owners.write_text("namespaces: {other: ann@lab.org}")
    await eventually(lambda: "owners_file_taken" in ask.webhook.events())
    assert await ask.counted("gpu_dev_webhook_owners_file_usable") == 1
    assert (await ask.marks(pod(2), CONTROLLER, namespace="other"))["gpu-dev/owner"] == "ann@lab.org"
    assert "ask an administrator" in await ask.refusal(pod(2), CONTROLLER, namespace="vision")


async def test_what_runs_in_the_booking_is_not_free_for_the_next_pod(ask: Asking, control: ControlPlane) -> None:
    await control.book("ann@lab.org", gpus=2, gpu_type="h100")
    await ask.marks(pod(2))
    seen = {"user": "ann@lab.org", "namespace": "lab", "name": "notebook", "uid": "u-1", "gpus": 1}
    async with control.client("gate") as gate:
        answer = await gate.post("/v1/schedulability/admissions", json={"pods": [seen]})
        assert answer.status_code == 200, answer.text

    async def refused() -> str | None:
        response = await ask(pod(2))
        return None if response["allowed"] else str(response["status"]["message"])

    assert "1 are in use" in (await eventually(refused) or "")
    await ask.marks(pod(1))


async def test_a_pod_with_a_map_is_told_its_cards_and_counted_by_them(ask: Asking, control: ControlPlane) -> None:
    await control.book("ann@lab.org", gpus=2, gpu_type="h100")
    # What it brings says one card; what the map says is counted.
    annotations = {"gpu-scheduling-map": "0=node1:0,1\n1=node1:0,1,2", "gpu-dev/map-devices": "0"}
    body = pod(0, name="check-0", annotations=annotations)
    body["spec"]["schedulerName"] = "gpu-scheduler"
    kept = await ask.marks(body)
    assert (kept["gpu-dev/map-devices"], kept["gpu-dev/owner"]) == ("0,1", "ann@lab.org")
    more = {**body, "metadata": {**body["metadata"], "name": "check-1"}}
    every = {**body, "spec": {**body["spec"], "containers": [{**body["spec"]["containers"][0], "env": [SEES_ALL]}]}}
    assert "is 'all', and the map says '0,1'" in await ask.refusal(every)
    assert "has booked 2 h100 now; 3 are asked for" in await ask.refusal(more)


async def test_cards_that_nobody_counts_are_not_seen(ask: Asking) -> None:
    body = pod(0)
    body["spec"]["containers"][0]["env"] = [SEES_ALL]
    assert "sets NVIDIA_VISIBLE_DEVICES" in await ask.refusal(body)


async def test_marks_of_pods_that_are_there_stay_but_for_who_keeps_them(ask: Asking) -> None:
    before = pod(1, annotations={**FORGED})
    later = pod(1, annotations={**FORGED, "gpu-dev/terminate-at": "2199-01-01T00:00:00Z"})
    bare = pod(1)
    update = {"operation": "UPDATE", "oldObject": before}
    for after in (later, bare):
        assert "can't be changed" in await ask.refusal(after, **update)
        keeper = "system:serviceaccount:gpu-dev-system:reservation-expiry"
        assert (await ask(after, keeper, **update))["allowed"]
    assert (await ask({**before, "metadata": {**before["metadata"], "labels": {"a": "b"}}}, **update))["allowed"]


async def test_asked_as_of_old(control: ControlPlane, tmp_path: Path, pair: Pair) -> None:
    booking = await control.book("ann@lab.org", gpus=1, gpu_type="h100")
    url = f"{control.url}/gpu-schedulability/"
    with enforcing(tmp_path, pair, url, control.tokens["gate"]) as webhook:
        async with asking(webhook, pair, PATIENCE_S) as ask:
            end = booking["end"].replace(".000Z", "Z")
            assert await ask.marks(pod(1)) == {"gpu-dev/owner": "ann@lab.org", "gpu-dev/terminate-at": end}
            assert "The booking is of h100, not of t4" in await ask.refusal(pod(1, "Tesla-T4"))
            assert "gpu-dev book" in await ask.refusal(pod(1), "oidc:bob")
        assert control.tokens["gate"] not in webhook.text()


async def test_what_a_wrong_token_says_is_nothing(control: ControlPlane, tmp_path: Path, pair: Pair) -> None:
    """Nobody can say; with a right one in the file the next can."""
    await control.book("ann@lab.org", gpus=1, gpu_type="h100")
    url = f"{control.url}/v1/schedulability"
    with enforcing(tmp_path, pair, url, "gpudev_wrong-token") as webhook:
        async with asking(webhook, pair) as ask:
            assert "does not answer" in await ask.refusal(pod(1))
            (tmp_path / "token").write_text(control.tokens["gate"])

            async def allowed() -> bool:
                return bool((await ask(pod(1)))["allowed"])

            await eventually(allowed)
        assert "gpudev_wrong-token" not in webhook.text()


# --- With one that does not answer as it should.


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def nonsense(_: web.Request) -> web.StreamResponse:
    return web.Response(text='{"schedulable": "yes"}')


async def redirect(request: web.Request) -> web.StreamResponse:
    return web.Response(status=307, headers={"Location": f"http://{request.host}/elsewhere"})


async def broken(_: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.mark.parametrize(("policy", "allowed"), [("fail_open", True), ("fail_closed", False), ("last_known", False)])
async def test_silence_of_every_kind_is_answered_in_time_and_by_policy(
    receiver: Receiver, tmp_path: Path, pair: Pair, policy: str, allowed: bool
) -> None:
    url = receiver.url("/v1/schedulability")
    with enforcing(tmp_path, pair, url, SILENCE=policy, API_TIMEOUT_S=str(API_TIMEOUT_S)) as webhook:
        async with asking(webhook, pair) as ask:
            await ask(pod(0))
            for answer in (never, nonsense, redirect, broken):
                receiver.answer = answer
                for number in range(3):
                    # Each somebody else: a question that is not answered yet is not asked again.
                    async with asyncio.timeout(API_TIMEOUT_S / 2):
                        response = await ask(pod(1), f"oidc:{answer.__name__}{number}")
                    assert response["allowed"] is allowed
                    if allowed:
                        assert "nobody could say" in response["warnings"][0]
            assert {"/v1/schedulability"} == {got.path for got in receiver.got}
            await eventually(lambda: "schedulability_silent" in webhook.events())


async def test_what_was_last_heard_holds_while_the_service_is_silent(
    receiver: Receiver, tmp_path: Path, pair: Pair
) -> None:
    said = {"schedulable": True, "until": "2099-01-01T00:00:00Z", "gpu_type": "h100", "gpus": 2}

    async def yes(_: web.Request) -> web.StreamResponse:
        return web.json_response({**said, "booking_id": "bkg-7", "reason": "booked"})

    url = receiver.url("/v1/schedulability")
    for last_known_s in ("3600", "1"):
        receiver.answer = yes
        folder = tmp_path / last_known_s
        folder.mkdir()
        with enforcing(folder, pair, url, FRESH_S="0.2", LAST_KNOWN_S=last_known_s) as webhook:
            async with asking(webhook, pair) as ask:

                async def refused(ask: Asking = ask) -> bool:
                    return not (await ask(pod(1)))["allowed"]

                async def allowed(ask: Asking = ask) -> bool:
                    return bool((await ask(pod(1)))["allowed"])

                await eventually(allowed)
                receiver.answer = broken
                if last_known_s == "1":
                    await eventually(refused)
                    continue
                await eventually(lambda webhook=webhook: "schedulability_silent" in webhook.events())
                assert (await ask.marks(pod(1)))["gpu-dev/booking"] == "bkg-7"


def test_settings_with_which_nothing_could_be_enforced_are_told_at_the_start(tmp_path: Path, pair: Pair) -> None:
    write_pair(pair, tmp_path)
    files = ["--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    for settings, told in (
        ({}, "GPU_DEV_WEBHOOK__API_URL is not set"),
        ({"API_URL": "https://api/v1/schedulability"}, "GPU_DEV_WEBHOOK__API_TOKEN_FILE"),
    ):
        given = {f"GPU_DEV_WEBHOOK__{name}": value for name, value in settings.items()}
        environment = {**kept, **given, "GPU_DEV_WEBHOOK__ENFORCE_BOOKINGS": "true"}
        program = ["admission_webhook", "serve", "--listen", "127.0.0.1:0", *files]
        code, said = ran(program, environment, tmp_path / "told.log")
        assert (code, told in said) == (2, True), said


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [({}, False), ({"ALLOW_SHARES": "true"}, True), ({"SHARE_RESOURCE": "lab.test/share"}, True)],
)
async def test_shares_of_cards_are_no_way_around_a_booking(
    settings: dict[str, str], allowed: bool, tmp_path: Path, pair: Pair
) -> None:
    body = pod(0)
    body["spec"]["containers"][0]["resources"] = {"limits": {"tencent.com/vcuda-core": "50"}}
    with enforcing(tmp_path, pair, "http://127.0.0.1:9/v1/schedulability", **settings) as webhook:
        async with asking(webhook, pair) as ask:
            response = await ask(body, "oidc:bob")
    assert response["allowed"] is allowed
    assert allowed or "tencent.com/vcuda-core" in response["status"]["message"]
