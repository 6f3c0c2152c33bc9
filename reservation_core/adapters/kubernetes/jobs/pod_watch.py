"""Following our pods: listed once, then watched, with nothing told as gone that may still be there."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import structlog

from reservation_core.adapters.kubernetes.api.errors import ApiServerError, ExpiredError, status_error
from reservation_core.adapters.kubernetes.api.list_and_watch import IDLE_S, LineSplitter, list_all
from reservation_core.adapters.kubernetes.api.plain_json import as_mapping
from reservation_core.adapters.kubernetes.api.requests import Query
from reservation_core.adapters.kubernetes.api.transport import Transport
from reservation_core.adapters.kubernetes.pods.marks import is_labelled
from reservation_core.adapters.kubernetes.pods.pod_statuses import read_pod_status
from reservation_core.domain.model import PodPhase, PodStatus
from reservation_core.ports.cluster import ClusterUnavailableError

_WATCH_S = (240, 480)  # the server ends a watch after this, at random, so that not all come back together


_SHORT_S = 1.0
_TRIES_FROM_HERE = 10
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 10.0


_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A pod as the API has it now; no status where it is not ours, or not to be known as such any more."""

    name: str
    uid: str
    status: PodStatus | None
    labelled: bool


class PodWatch:
    """One watcher's view of our pods. `idle_s` is how long the server may be silent.

    All pods of the namespace are followed, not those that a selector finds: to a selector, a pod whose label somebody
    took away is gone, and it runs.
    """

    def __init__(self, transport: Transport, path: str, *, idle_s: float = IDLE_S) -> None:
        self._transport = transport
        self._path = path
        self._idle_s = idle_s
        self._told: dict[str, _Seen] = {}
        self._version: str | None = None
        self._failures = 0

    async def statuses(self) -> AsyncGenerator[PodStatus, None]:
        """Every pod once, then every change, `gone` last. Goes on through whatever may pass.

        Ends with ClusterUnavailableError when the adapter is closed.
        """
        while True:
            try:
                async with aclosing(self._once()) as statuses:
                    async for status in statuses:
                        yield status
            except ExpiredError:
                # Our place in the stream is forgotten: list anew, at once unless that happened just now.
                self._version = None
                self._failures += 1
                if self._failures > 1:
                    await self._pause()
            except (ApiServerError, ClusterUnavailableError) as problem:
                if self._transport.closed:
                    raise ClusterUnavailableError("The Kubernetes adapter was closed; open a new one.") from problem
                self._failures += 1
                if self._failures in (1, 10) or self._failures % 100 == 0:
                    _log.warning("pod watch interrupted", problem=str(problem), failures=self._failures)
                if self._failures % _TRIES_FROM_HERE == 0:
                    # A server whose database was restored may not come to our place for long, and only says so.
                    self._version = None
                await self._pause()

    async def _once(self) -> AsyncGenerator[PodStatus, None]:
        """One list where that is needed, and one watch to its end."""
        if self._version is None:
            for status in await self._relist():
                yield status
        clock = asyncio.get_running_loop().time
        begun = clock()
        query: Query = {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": random.randint(*_WATCH_S),  # noqa: S311 -- spreads load, keeps no secret
        }
        async with self._transport.stream(self._path, query=query, idle_s=self._idle_s) as chunks:
            lines = LineSplitter()
            async for chunk in chunks:
                for line in lines.feed(chunk):
                    for status in self._event(line):
                        yield status
                    self._failures = 0
        if clock() - begun < _SHORT_S:
            raise ClusterUnavailableError("The API server ended the watch on pods as soon as it had begun.")

    async def _pause(self) -> None:
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._failures, 16))
        await asyncio.sleep(longest * random.uniform(0.5, 1))  # noqa: S311 -- spreads load, keeps no secret

    async def _relist(self) -> list[PodStatus]:
        """What differs from what was told; a pod is told gone only when the whole list lacks its name."""
        listed, version = await list_all(self._transport, self._path, _seen)
        by_name = {seen.name: seen for seen in listed}
        news = [self._farewell(name) for name in self._told.keys() - by_name.keys()]
        for seen in listed:
            news += self._news(seen)
        self._version = version
        return news

    def _event(self, line: bytes) -> list[PodStatus]:
        """What one line of the watch has to tell."""
        try:
            event = as_mapping(json.loads(line))
        except (ValueError, RecursionError):
            raise ClusterUnavailableError("The watch on pods was answered with something that is not JSON.") from None
        thing, kind = as_mapping(event.get("object")), event.get("type")
        if kind == "ERROR":
            raise status_error(thing)
        news: list[PodStatus] = []
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            seen = _seen(thing)
            news += self._news(seen)
            if kind == "DELETED" and seen.name in self._told:
                news.append(self._farewell(seen.name))
        version = as_mapping(thing.get("metadata")).get("resourceVersion")
        if isinstance(version, str) and version:
            self._version = version
        return news

    def _news(self, seen: _Seen) -> list[PodStatus]:
        news: list[PodStatus] = []
        told = self._told.get(seen.name)
        if told is not None and told.uid != seen.uid:
            news.append(self._farewell(seen.name))
            told = None
        if seen.status is None:
            return news
        if not seen.labelled and (told is None or told.labelled):
            _log.warning("a pod of ours has lost labels, and is followed by its name", pod=seen.name)
        if told is None or told.status != seen.status:
            news.append(seen.status)
        self._told[seen.name] = seen
        return news

    def _farewell(self, name: str) -> PodStatus:
        status = self._told.pop(name).status
        if status is None:
            raise AssertionError("Only what could be read is told.")
        return replace(status, phase=PodPhase.GONE)


def _seen(pod: Mapping[str, Any]) -> _Seen:
    metadata = as_mapping(pod.get("metadata"))
    status = read_pod_status(pod)
    labelled = status is None or is_labelled(pod, status.name)
    return _Seen(str(metadata.get("name")), str(metadata.get("uid")), status, labelled)
