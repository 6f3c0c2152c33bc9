"""Our pods as a watch shows them: every status once, then changes; a pod is gone only when it surely is."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

import structlog

from reservation_core.adapters.kubernetes.api_server.list_and_watch import IDLE_S
from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch, ObservedObject
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.pods.marks import is_labelled
from reservation_core.adapters.kubernetes.pods.pod_statuses import read_pod_status
from reservation_core.domain.model import PodPhase, PodStatus

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod as the API has it now; `status` is None for a pod that is not recognisable as ours."""

    name: str
    status: PodStatus | None
    labelled: bool
    gone: bool


class PodWatch:
    """One watcher's view of our pods. `idle_s` is the longest silence of the server.

    All pods of the namespace are followed: with a label selector, a running pod that lost its label would count as
    gone.
    """

    def __init__(self, transport: Transport, path: str, *, idle_s: float = IDLE_S) -> None:
        self._watch = ObjectWatch(transport, path, idle_s=idle_s)
        self._known: dict[str, _Pod] = {}

    async def statuses(self) -> AsyncGenerator[PodStatus, None]:
        """Yield every pod, then every change, `gone` last. Raises ClusterUnavailableError once closed."""
        async with aclosing(self._watch.follow_as(_read_pod)) as pods:
            async for pod in pods:
                for status in self._changes(pod) if pod is not None else ():
                    yield status

    def _changes(self, pod: _Pod) -> list[PodStatus]:
        """The statuses that differ from the last one; of a pod that is gone, its last status and then `gone`."""
        known = self._known.get(pod.name)
        changes: list[PodStatus] = []
        if pod.status is not None:
            if not pod.labelled and (known is None or known.labelled):
                _log.warning("a pod of ours has lost labels, and is followed by its name", pod=pod.name)
            if known is None or known.status != pod.status:
                changes.append(pod.status)
            self._known[pod.name] = known = pod
        if pod.gone and known is not None and known.status is not None:
            del self._known[pod.name]
            changes.append(replace(known.status, phase=PodPhase.GONE))
        return changes


def _read_pod(seen: ObservedObject) -> _Pod:
    status = read_pod_status(seen.thing)
    labelled = status is None or is_labelled(seen.thing, status.name)
    return _Pod(seen.name, status, labelled, seen.gone)
