"""Kinds of objects that a cluster has only where somebody has installed them."""

from tests.kubernetes.api_client import ApiAnswerError, ApiClient
from tests.waiting import eventually

_PATIENCE_S = 60
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def define_kind(client: ApiClient, group: str, version: str, kind: str, plural: str, scope: str) -> None:
    """Install a kind whose objects may have any fields, and a status of their own."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # Groups of Kubernetes' own (*.k8s.io) need it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": names,
            "versions": [{**served, "subresources": {"status": {}}}],
        },
    }
    await client.try_call("POST", _DEFINITIONS, body)

    async def known() -> bool:
        try:
            return await client.try_call("GET", f"/apis/{group}/{version}/{plural}")
        except ApiAnswerError as problem:
            if problem.code != 429:  # its storage is being made
                raise
            return False

    await eventually(known, _PATIENCE_S)


async def remove_kind(client: ApiClient, group: str, plural: str) -> None:
    """Take a kind from the cluster, with all objects of it."""
    await client.try_call("DELETE", f"{_DEFINITIONS}/{plural}.{group}")
