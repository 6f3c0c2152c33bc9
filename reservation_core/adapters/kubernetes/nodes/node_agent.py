"""The node agent: writes the GPUs that a node's driver reports, and their links, to annotations of its Node object.

It writes only differences; a changed or removed annotation is corrected the next time.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Protocol

import structlog

from reservation_core.adapters.kubernetes.api_server.errors import (
    ApiServerError,
    ApiServerForbidsError,
    ObjectNotFoundError,
)
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping
from reservation_core.adapters.kubernetes.api_server.retries import MERGE_PATCH
from reservation_core.adapters.kubernetes.nodes.node_gpus import Card, format_cards
from reservation_core.adapters.kubernetes.pods.marks import NODE_GPUS, NODE_LINKS
from reservation_core.adapters.local.inventory import LocalInventory
from reservation_core.domain.cards.link_words import format_links
from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.model import GpuCondition
from reservation_core.ports.cluster import ClusterUnavailableError

_log = structlog.get_logger(__name__)
_NODE_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


class NodeAgentError(Exception):
    """The agent can't work on this node; the text says what is missing."""


class Requests(Protocol):
    """Requests to the API server, to read and patch one Node."""

    async def request(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, content_type: str = ...
    ) -> dict[str, Any]:
        """Return the answered object. Raises ClusterUnavailableError and ApiServerError."""
        ...


class NodeAgent:
    """Keeps one Node's annotations current. `inventory` reads the driver. Raises NodeAgentError for a bad node name.

    If the driver reports no links, an annotation about them stays as it is.
    """

    def __init__(self, requests: Requests, node: str, inventory: LocalInventory) -> None:
        if not _NODE_NAME.fullmatch(node):
            raise NodeAgentError(
                f"{node!r} is not a node's name. Set NODE_NAME to the pod's spec.nodeName (a fieldRef in its manifest)."
            )
        self._requests = requests
        self._node = node
        self._path = f"/api/v1/nodes/{node}"
        self._inventory = inventory

    async def update(self) -> bool:
        """Update the annotations once; whether they had to be written.

        Raises NodeAgentError without GPUs or a permission, ClusterUnavailableError when the driver or the API server
        does not answer.
        """
        wanted = await asyncio.to_thread(self._annotations)
        try:
            node = await self._requests.request("GET", self._path)
            present = as_mapping(as_mapping(node.get("metadata")).get("annotations"))
            if all(present.get(key) == text for key, text in wanted.items()):
                return False
            body = {"metadata": {"annotations": wanted}}
            await self._requests.request("PATCH", self._path, body=body, content_type=MERGE_PATCH)
        except ObjectNotFoundError as problem:
            raise NodeAgentError(
                f"The cluster has no node {self._node}. Set NODE_NAME to the name that `kubectl get nodes` shows."
            ) from problem
        except ApiServerForbidsError as problem:
            raise NodeAgentError(
                f"The node agent may not read or write node {self._node} ({problem.message}). Give its service account"
                " `get` and `patch` on nodes."
            ) from problem
        except ApiServerError as problem:
            raise ClusterUnavailableError(f"The API server refused to change node {self._node}: {problem}") from problem
        _log.info("wrote the node's GPUs", node=self._node)
        return True

    async def update_again(self) -> None:
        """Update the annotations, with NodeAgentError as a passing failure: ClusterUnavailableError.

        The annotations stay as they were, and the node's state says whether it is usable.
        """
        try:
            await self.update()
        except NodeAgentError as problem:
            raise ClusterUnavailableError(f"The GPUs of node {self._node} could not be written: {problem}") from problem

    def _annotations(self) -> dict[str, str]:
        report = self._report()
        annotations = {NODE_GPUS: format_cards(self._cards(report))}
        if report.links is not None:
            annotations[NODE_LINKS] = format_links(report.links)
        return annotations

    def _report(self) -> NodeReport:
        reports = {report.name: report for report in self._inventory.nodes()}
        report = next(iter(reports.values())) if len(reports) == 1 else reports.get(self._node)
        if report is None or not report.gpus:
            raise NodeAgentError(
                f"The driver on node {self._node} reports no NVIDIA GPU. Run the node agent on GPU nodes only, with"
                " runtimeClassName nvidia, NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility."
            )
        return report

    def _cards(self, report: NodeReport) -> list[Card]:
        return [
            Card(
                index=gpu.index,
                uuid=gpu.uuid,
                memory_bytes=gpu.memory_bytes,
                product=self._inventory.product(gpu.uuid) or gpu.gpu_type,
                lost=gpu.condition is GpuCondition.LOST,
            )
            for gpu in report.gpus
            if gpu.uuid is not None
        ]
