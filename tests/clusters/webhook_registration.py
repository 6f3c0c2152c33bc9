"""A webhook in the API server's configuration, as the chart registers it, for one namespace of a test."""

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from reservation_core.adapters.certificates.pairs import Pair
from tests.kubernetes.api_client import MERGE, ApiAnswerError, ApiClient, JsonObject
from tests.kubernetes.api_server import ApiServer
from tests.waiting import eventually

ENFORCED_LABEL = "gpu-dev/enforce-bookings"
_PATH = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def bundle(pairs: Sequence[Pair]) -> str:
    """A `caBundle` that trusts the authorities of these pairs."""
    return base64.b64encode(b"".join(pair.authority for pair in pairs)).decode()


@asynccontextmanager
async def registered(
    server: ApiServer,
    name: str,
    namespace: str,
    url: str,
    pairs: Sequence[Pair],
    *,
    conditions: bool = True,
    enforced: bool = False,
    labelled: bool = False,
) -> AsyncIterator[None]:
    """The API server asks the webhook at `url` about pods of `namespace`, from when the block begins until its end.

    `conditions`: about mapped pods only. `enforced`: about all pods at `/enforce` beside, where the namespace has the
    label for it. `labelled`: about pods with the label gpu-dev/cards=visible beside.
    """
    path = f"{_PATH}/{name}"
    async with server.client() as client:
        await client.call("POST", _PATH, _configuration(name, namespace, url, pairs, conditions, enforced, labelled))
        try:
            if conditions:
                await eventually(lambda: _asks(client, namespace))
            yield
        finally:
            await client.call("DELETE", path)


async def trust(client: ApiClient, name: str, pairs: Sequence[Pair]) -> None:
    """Change whom the API server trusts."""
    path = f"{_PATH}/{name}"
    configuration = await client.call("GET", path)
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = bundle(pairs)
    await client.call("PATCH", path, {"webhooks": configuration["webhooks"]}, content_type=MERGE)


def _configuration(
    name: str, namespace: str, url: str, pairs: Sequence[Pair], conditions: bool, enforced: bool, labelled: bool
) -> JsonObject:
    webhook: dict[str, Any] = {
        "name": f"{name}.gpu-dev.example.org",
        "clientConfig": {"url": f"{url}/mutate", "caBundle": bundle(pairs)},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["pods", "pods/ephemeralcontainers"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "timeoutSeconds": 3,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
        "admissionReviewVersions": ["v1"],
    }
    if conditions:
        expression = "object.spec.schedulerName == 'gpu-scheduler'"
        webhook["matchConditions"] = [{"name": "ours", "expression": expression}]
    webhooks = [webhook]
    if enforced:
        labels = {"kubernetes.io/metadata.name": namespace, ENFORCED_LABEL: "true"}
        entry = {key: value for key, value in webhook.items() if key != "matchConditions"} | {
            "name": f"enforce.{name}.gpu-dev.example.org",
            "clientConfig": {"url": f"{url}/enforce", "caBundle": bundle(pairs)},
            "namespaceSelector": {"matchLabels": labels},
        }
        webhooks.append(entry)
    if labelled:
        entry = {key: value for key, value in webhook.items() if key != "matchConditions"} | {
            "name": f"cards.{name}.gpu-dev.example.org",
            "objectSelector": {"matchLabels": {"gpu-dev/cards": "visible"}},
        }
        webhooks.append(entry)
    return {"metadata": {"name": name}, "webhooks": webhooks}


async def _asks(client: ApiClient, namespace: str) -> bool:
    """Whether the API server has taken the configuration up: what only the webhook denies is denied."""
    pod = {
        "metadata": {"name": "probe-0", "annotations": {"gpu-scheduling-map": "nonsense"}},
        "spec": {"schedulerName": "gpu-scheduler", "containers": [{"name": "probe", "image": "busybox"}]},
    }
    try:
        await client.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All")
    except ApiAnswerError as problem:
        return problem.code == 403 and "gpu-scheduling-map" in str(problem)
    return False
