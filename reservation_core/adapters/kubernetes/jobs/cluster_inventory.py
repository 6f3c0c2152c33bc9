"""Asking an API server what there is: nodes with their cards, and pods of others that use these."""

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
from reservation_core.domain.model import ForeignPod, NodeReport

_NODES = "/api/v1/nodes"
_ALL_PODS = "/api/v1/pods"
_RESOURCES = "/apis/resource.k8s.io"
_RESOURCE_VERSIONS = ("v1", "v1beta2", "v1beta1")

T = TypeVar("T")

_log = structlog.get_logger(__name__)


async def list_nodes(transport: Transport, rules: NodeRules, node_selector: str) -> list[NodeReport]:
    """The nodes that the selector names (empty: all), with their cards. Raises ClusterUnavailableError."""
    with explained("list", "nodes"):
        nodes, _ = await list_all(transport, _NODES, _slim, {"labelSelector": node_selector or None})
    return read_nodes(nodes, await _resource_slices(transport), rules)


async def list_foreign(transport: Transport, rules: ForeignRules, node_selector: str) -> list[ForeignPod]:
    """Pods of all namespaces that use GPUs of our nodes and are not ours. Raises ClusterUnavailableError.

    Claims are read only where some pod has one, and slices only where one has claimed a GPU.
    """
    with explained("list", "nodes"):
        names, _ = await list_all(transport, _NODES, _name, {"labelSelector": node_selector or None})
    ours = frozenset(names)

    def read(pod: Mapping[str, Any]) -> Claimant | None:
        return read_claimant(pod, rules, ours)

    with explained("list", "pods"):
        found, _ = await list_all(transport, _ALL_PODS, read, {"fieldSelector": "spec.nodeName!="})
    wanted = {key for who in found for key in who.claims if key is not None}
    claims = await _claims(transport, rules, wanted) if wanted else {}
    given = any(claim.devices for claim in claims.values())
    cards = cards_of_devices(await _resource_slices(transport)) if given else {}
    return read_foreign(found, claims, cards, rules)


async def _claims(transport: Transport, rules: ForeignRules, wanted: set[ClaimKey]) -> dict[ClaimKey, Claim]:
    """Those of these claims that can be read."""

    def read(thing: Mapping[str, Any]) -> Claim | None:
        claim = read_claim(thing, rules.device_classes)
        return claim if claim is not None and claim.key in wanted else None

    try:
        found = await _list_resources(transport, "resourceclaims", read)
    except ApiServerForbidsError as problem:
        # As before there was a rule for it: the rest of the inventory goes on.
        _log.warning("each resource claim counts as a GPU: deploy/rbac has the rule to read them", problem=str(problem))
        return {}
    except ApiServerError as problem:
        raise unavailable(problem, "list", "resourceclaims", "") from problem
    return {claim.key: claim for claim in found}


async def _resource_slices(transport: Transport) -> list[Mapping[str, Any]]:
    """What DRA drivers say of their devices."""
    with explained("list", "resourceslices"):
        return await _list_resources(transport, "resourceslices", _slim)


async def _list_resources(transport: Transport, plural: str, read: Callable[[Mapping[str, Any]], T | None]) -> list[T]:
    """Objects of resource.k8s.io in the newest version that is served; none where the API server has no such API."""
    try:
        group = await transport.request("GET", _RESOURCES)
        served = {as_mapping(served_version).get("version") for served_version in as_list(group.get("versions"))}
        version = next((version for version in _RESOURCE_VERSIONS if version in served), None)
        if version is None:
            return []
        found, _ = await list_all(transport, f"{_RESOURCES}/{version}/{plural}", read)
    except ObjectNotFoundError:
        return []
    return found


def _name(thing: Mapping[str, Any]) -> str:
    return str(as_mapping(thing.get("metadata")).get("name"))


def _slim(thing: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object without what is large and never looked at."""
    metadata = {key: value for key, value in as_mapping(thing.get("metadata")).items() if key != "managedFields"}
    status = {key: value for key, value in as_mapping(thing.get("status")).items() if key != "images"}
    return {**thing, "metadata": metadata, "status": status}
