"""Binding pods over the API server, and looking one up whose bind was not answered."""

import re
from collections.abc import Mapping
from typing import Any

from pod_scheduling.ports.pod_binding import BindRefusedError, PodChangedError, PodRef
from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError, ConflictError, ObjectNotFoundError
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.pods.pod_statuses import is_finished
from reservation_core.ports.cluster import ClusterUnavailableError

NOT_ENDED = {"fieldSelector": "status.phase!=Succeeded"}  # of those that failed a container may still run

BIND_LASTS_S = 4
"""What the API server has not bound so many seconds after it was asked, it binds no more."""

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


class KubernetesPodBindings:
    """See pod_scheduling.ports.pod_binding.PodBindings."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def bind(self, pod: PodRef, node: str, marks: Mapping[str, str] = {}) -> None:
        """Bind a pod with its annotations, or find that it is bound there already: an answer may have been lost.

        The server writes both at once, on a pod of this uid that is on no node. Raises PodChangedError,
        BindRefusedError and ClusterUnavailableError.
        """
        lost = False

        def unanswered() -> None:
            nonlocal lost
            lost = True

        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if marks:
            metadata["annotations"] = dict(marks)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path, query = f"{path_of(pod)}/binding", {"timeout": f"{BIND_LASTS_S}s"}
        try:
            await self._transport.request("POST", path, query=query, body=body, unanswered=unanswered)
        except (ConflictError, ObjectNotFoundError) as problem:
            # Also of a pod that has ended meanwhile: it was bound as it was to be.
            if _node_of(await self.find(pod)) != node:
                raise PodChangedError(f"{pod} could not be bound to {node}: {problem.message}") from problem
        except ApiServerError as problem:
            if lost:
                raise ClusterUnavailableError(f"Whether {pod} was bound to {node} is not known: {problem}") from problem
            raise BindRefusedError(f"The API server refuses to bind {pod} to {node}: {problem}") from problem

    async def find(self, pod: PodRef) -> Mapping[str, Any] | None:
        """Read a pod from the API server; None without one. Raises ClusterUnavailableError."""
        if not (_NAME.fullmatch(pod.namespace) and _NAME.fullmatch(pod.name)):
            return None  # a scheduler's word for it, which is no path to anything else
        try:
            found = await self._transport.request("GET", path_of(pod))
        except ObjectNotFoundError:
            return None
        except ApiServerError as problem:
            raise ClusterUnavailableError(f"Pod {pod} could not be looked at: {problem}") from problem
        return found if as_mapping(found.get("metadata")).get("uid") == pod.uid else None

    async def node_of(self, pod: PodRef) -> str | None:
        """The node that a pod is on and has not ended on. Raises ClusterUnavailableError."""
        found = await self.find(pod)
        return None if found is None or is_finished(found) else _node_of(found)


def _node_of(pod: Mapping[str, Any] | None) -> str | None:
    node = None if pod is None else as_mapping(pod.get("spec")).get("nodeName")
    return node if isinstance(node, str) and node else None


def path_of(pod: PodRef) -> str:
    """The path of a pod."""
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
