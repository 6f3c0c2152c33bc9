"""Our pods as a watch shows them: each status once, then what differs, with nothing told as gone that may be there."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

import structlog

from reservation_core.adapters.kubernetes.api_server.list_and_watch import IDLE_S
from reservation_core.adapters.kubernetes.api_server.object_watch import ObjectWatch, SeenObject
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.pods.marks import is_labelled
from reservation_core.adapters.kubernetes.pods.pod_statuses import read_pod_status
from reservation_core.domain.model import PodPhase, PodStatus

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod as the API has it now; no status where it is not ours, or can't be recognised as ours any more."""

    name: str
    status: PodStatus | None
    labelled: bool
    gone: bool


class PodWatch:
    """One watcher's view of our pods. `idle_s` is how long the server may be silent.

    All pods of the namespace are followed, not those that a selector finds: to a selector, a pod whose label somebody
    took away is gone, and it runs.
    """

    def __init__(self, transport: Transport, path: str, *, idle_s: float = IDLE_S) -> None:
        self._watch = ObjectWatch(transport, path, idle_s=idle_s)
        self._told: dict[str, _Pod] = {}

    async def statuses(self) -> AsyncGenerator[PodStatus, None]:
        """Every pod once, then every change, `gone` last. Goes on through whatever may pass.

        Ends with ClusterUnavailableError when the adapter is closed.
        """
        async with aclosing(self._watch.told_as(_read_pod)) as pods:
            async for pod in pods:
                for status in self._news(pod) if pod is not None else ():
                    yield status

    def _news(self, pod: _Pod) -> list[PodStatus]:
        """What differs from what was told: of a pod that is gone its last status, and then that it is gone."""
        told = self._told.get(pod.name)
        news: list[PodStatus] = []
        if pod.status is not None:
            if not pod.labelled and (told is None or told.labelled):
                _log.warning("a pod of ours has lost labels, and is followed by its name", pod=pod.name)
            if told is None or told.status != pod.status:
                news.append(pod.status)
            self._told[pod.name] = told = pod
        if pod.gone and told is not None and told.status is not None:
            del self._told[pod.name]
            news.append(replace(told.status, phase=PodPhase.GONE))
        return news


def _read_pod(seen: SeenObject) -> _Pod:
    status = read_pod_status(seen.thing)
    labelled = status is None or is_labelled(seen.thing, status.name)
    return _Pod(seen.name, status, labelled, seen.gone)
