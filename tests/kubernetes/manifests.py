"""What lies in `deploy/`: reading it, and bringing it to an API server without kubectl."""

from collections.abc import Iterator
from pathlib import Path

from tests.kubernetes.api_client import MERGE, ApiClient, JsonObject
from tests.read_yaml import read_all_yaml

DEPLOY = Path(__file__).parents[2] / "deploy"

_KEPT = {"Namespace": "namespaces", "ServiceAccount": "serviceaccounts"}
_REPLACED = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "DaemonSet": "daemonsets",
    "NetworkPolicy": "networkpolicies",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


def manifests(*, enforcing: bool = True) -> Iterator[tuple[str, JsonObject]]:
    """Every Kubernetes object of `deploy/`, with the name of its file, in the order in which people apply them.

    `enforcing`: with what is applied only where bookings are enforced.
    """
    paths = [DEPLOY / "namespaces.yaml", *sorted((DEPLOY / "rbac").glob("*.yaml")), DEPLOY / "node-agent.yaml"]
    for path in [*paths, *(sorted((DEPLOY / "enforcement").glob("*.yaml")) if enforcing else ())]:
        for document in read_all_yaml(path.read_text()):
            yield path.name, document


def objects(kind: str, *, enforcing: bool = True) -> list[JsonObject]:
    """Those of one kind."""
    return [document for _, document in manifests(enforcing=enforcing) if document["kind"] == kind]


async def apply(client: ApiClient, document: JsonObject) -> None:
    """Create an object, or replace one of its name. Accounts stay what they are, as tokens hang on them."""
    kind, name = document["kind"], document["metadata"]["name"]
    collection = _collection(document)
    if kind in _KEPT:
        if not await client.try_call("POST", collection, document):
            await client.call("PATCH", f"{collection}/{name}", document, content_type=MERGE)
        return
    await remove(client, document)
    await client.call("POST", collection, document)


async def remove(client: ApiClient, document: JsonObject) -> None:
    """Remove an object; namespaces and accounts stay, as only a controller could empty them."""
    if document["kind"] not in _KEPT:
        path = f"{_collection(document)}/{document['metadata']['name']}"
        await client.try_call("DELETE", path, {"propagationPolicy": "Background"})


def _collection(document: JsonObject) -> str:
    version, namespace = document["apiVersion"], document["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{scope}/{({**_KEPT, **_REPLACED})[document['kind']]}"
