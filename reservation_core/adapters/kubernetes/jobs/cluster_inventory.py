"""Read from the API server nodes with their GPUs, and foreign pods that use these."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog

from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    ObjectNotFoundError,
)
from reservation_core.adapters.kubernetes.api_server.list_and_watch import list_all
from reservation_core.adapters.kubernetes.api_server.plain_json import as_list, as_mapping
from reservation_core.adapters.kubernetes.api_server.refusals import explained, unavailable
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.jobs.foreign_pods import Claimant, ForeignRules, read_claimant, read_foreign
from reservation_core.adapters.kubernetes.nodes.gpu_claims import Claim, ClaimKey, read_claim
from reservation_core.adapters.kubernetes.nodes.node_gpus import cards_of_devices
from reservation_core.adapters.kubernetes.nodes.node_reports import NodeRules, read_nodes
from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.model import ForeignPod

_NODES = "/api/v1/nodes"
_ALL_PODS = "/api/v1/pods"
_RESOURCES = "/apis/resource.k8s.io"
_RESOURCE_VERSIONS = ("v1", "v1beta2", "v1beta1")

T = TypeVar("T")

_log = structlog.get_logger(__name__)


async def list_nodes(transport: Transport, rules: NodeRules, node_selector: str) -> list[NodeReport]:
    """The nodes that the selector matches (empty: all), with their GPUs. Raises ClusterUnavailableError."""
    with explained("list", "nodes"):
        nodes, _ = await list_all(transport, _NODES, _slim, {"labelSelector": node_selector or None})
    return read_nodes(nodes, await _resource_slices(transport), rules)


async def list_foreign(transport: Transport, rules: ForeignRules, node_selector: str) -> list[ForeignPod]:
    """Pods of all namespaces that use GPUs of our nodes and are not ours. Raises ClusterUnavailableError.

    Claims are read only if a pod has one, and slices only if a claim has devices.
    """
    with explained("list", "nodes"):
        names, _ = await list_all(transport, _NODES, _name, {"labelSelector": node_selector or None})
    ours = frozenset(names)

    def read(pod: Mapping[str, Any]) -> Claimant | None:
        return read_claimant(pod, rules, ours)

    with explained("list", "pods"):
        claimants, _ = await list_all(transport, _ALL_PODS, read, {"fieldSelector": "spec.nodeName!="})
    wanted = {key for claimant in claimants for key in claimant.claims if key is not None}
    claims = await _claims(transport, rules, wanted) if wanted else {}
    allocated = any(claim.devices for claim in claims.values())
    cards = cards_of_devices(await _resource_slices(transport)) if allocated else {}
    return read_foreign(claimants, claims, cards, rules)


async def _claims(transport: Transport, rules: ForeignRules, wanted: set[ClaimKey]) -> dict[ClaimKey, Claim]:
    """The claims of `wanted` that can be read, by key."""

    def read(thing: Mapping[str, Any]) -> Claim | None:
        claim = read_claim(thing, rules.device_classes)
        return claim if claim is not None and claim.key in wanted else None

    try:
        claims = await _list_resources(transport, "resourceclaims", read)
    except ApiServerForbidsError as problem:
        # Older roles lack this permission; the rest of the inventory must not depend on it.
        _log.warning("each resource claim counts as a GPU: deploy/rbac has the rule to read them", problem=str(problem))
        return {}
    except ApiServerError as problem:
        raise unavailable(problem, "list", "resourceclaims", "") from problem
    return {claim.key: claim for claim in claims}


async def _resource_slices(transport: Transport) -> list[Mapping[str, Any]]:
    """The devices that DRA drivers publish."""
    with explained("list", "resourceslices"):
        return await _list_resources(transport, "resourceslices", _slim)


async def _list_resources(transport: Transport, plural: str, read: Callable[[Mapping[str, Any]], T | None]) -> list[T]:
    """Objects of resource.k8s.io in the newest served version; none where the API server lacks the API."""
    try:
        group = await transport.request("GET", _RESOURCES)
        served = {as_mapping(served_version).get("version") for served_version in as_list(group.get("versions"))}
        version = next((version for version in _RESOURCE_VERSIONS if version in served), None)
        if version is None:
            return []
        things, _ = await list_all(transport, f"{_RESOURCES}/{version}/{plural}", read)
    except ObjectNotFoundError:
        return []
    return things


def _name(thing: Mapping[str, Any]) -> str:
    return str(as_mapping(thing.get("metadata")).get("name"))


def _slim(thing: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object without large fields that nothing reads."""
    metadata = {key: value for key, value in as_mapping(thing.get("metadata")).items() if key != "managedFields"}
    status = {key: value for key, value in as_mapping(thing.get("status")).items() if key != "images"}
    return {**thing, "metadata": metadata, "status": status}
