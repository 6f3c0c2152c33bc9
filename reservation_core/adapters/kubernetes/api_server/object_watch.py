"""Follow any kind of objects: every object once, then every change, through interruptions.

An object counts as gone after its DELETED event, or when a later consistent list lacks it. Every list yields all its
objects again. Only names and uids are kept in memory, and converted objects while a list is read.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError, ExpiredError, status_error
from reservation_core.adapters.kubernetes.api_server.list_and_watch import IDLE_S, LineSplitter, list_all
from reservation_core.adapters.kubernetes.api_server.plain_json import EVENT, as_mapping, decoded
from reservation_core.adapters.kubernetes.api_server.requests import Query
from reservation_core.adapters.kubernetes.api_server.retries import Transport, doubled_pause
from reservation_core.ports.cluster import ClusterUnavailableError

_WATCH_S = (240, 480)  # a random timeout, so that watches are not renewed all together
_SHORT_S = 1.0
_TRIES_FROM_HERE = 10
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 10.0

_log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """An object as it is now, or the last known state of a deleted one."""

    namespace: str
    name: str
    uid: str
    thing: Mapping[str, Any]
    gone: bool = False


class ObjectWatch:
    """One watcher's view of the objects at a path. `selector` goes with every list and watch."""

    def __init__(
        self, transport: Transport, path: str, selector: Query | None = None, *, idle_s: float = IDLE_S
    ) -> None:
        self._transport = transport
        self._path = path
        self._selector = dict(selector or {})
        self._idle_s = idle_s
        self._known: dict[tuple[str, str], str] = {}
        self._version: str | None = None
        self._failures = 0
        self.problem: str | None = None
        """Why the watch is interrupted; None while it works."""

    def restart_with_list(self) -> None:
        """Start the next watch with a new list; objects that it lacks are yielded as gone."""
        self._version = None

    async def follow_as(self, made: Callable[[ObservedObject], T]) -> AsyncGenerator[T | None, None]:
        """Yield `made` of every object, None at the end of each list, then `made` of every change.

        A list takes only the memory of what `made` returns. Ends with ClusterUnavailableError when the transport is
        closed.
        """
        while True:
            try:
                async with aclosing(self._list_and_watch(made)) as seen:
                    async for seen_object in seen:
                        yield seen_object
            except ExpiredError:
                self._version = None
                self._failures += 1
                if self._failures > 1:
                    await self._pause()
            except (ApiServerError, ClusterUnavailableError) as problem:
                if self._transport.closed:
                    raise ClusterUnavailableError("The Kubernetes adapter was closed; open a new one.") from problem
                self._failures += 1
                self.problem = str(problem)
                if self._failures in (1, 10) or self._failures % 100 == 0:
                    _log.warning("watch interrupted", of=self._path, problem=str(problem), failures=self._failures)
                if self._failures % _TRIES_FROM_HERE == 0:
                    self._version = None  # after a restored backup the server may not reach our version for long
                await self._pause()

    async def _list_and_watch(self, made: Callable[[ObservedObject], T]) -> AsyncGenerator[T | None, None]:
        if self._version is None:
            async with aclosing(self._list(made)) as listed:
                async for listed_object in listed:
                    yield listed_object
            self.problem = None
            yield None
        begun = asyncio.get_running_loop().time()
        query = {
            **self._selector,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": random.randint(*_WATCH_S),  # noqa: S311 -- spreads load, keeps no secret
        }
        async with self._transport.stream(self._path, query=query, idle_s=self._idle_s) as chunks:
            self.problem = None
            lines = LineSplitter()
            async for chunk in chunks:
                for line in lines.feed(chunk):
                    for seen_object in self._event(line):
                        yield made(seen_object)
                    self._failures = 0
        if asyncio.get_running_loop().time() - begun < _SHORT_S:
            raise ClusterUnavailableError(f"The API server ended the watch on {self._path} as soon as it had begun.")

    async def _list(self, made: Callable[[ObservedObject], T]) -> AsyncGenerator[T, None]:
        def read(thing: Mapping[str, Any]) -> tuple[tuple[str, str], str, T] | None:
            seen = _read(thing)
            return None if seen is None else ((seen.namespace, seen.name), seen.uid, made(seen))

        listed, version = await list_all(self._transport, self._path, read, self._selector)
        present = {key: uid for key, uid, _ in listed}
        for (namespace, name), uid in list(self._known.items()):
            if present.get((namespace, name)) != uid:
                yield made(ObservedObject(namespace, name, uid, {}, gone=True))
        for _, _, seen_object in listed:
            yield seen_object
        self._known, self._version = present, version

    def _event(self, line: bytes) -> list[ObservedObject]:
        """The changes in one line of the watch."""
        try:
            event = as_mapping(decoded(line, EVENT))
        except (ValueError, RecursionError):
            raise ClusterUnavailableError(f"The watch on {self._path} brought something that is not JSON.") from None
        thing, kind = as_mapping(event.get("object")), event.get("type")
        if kind == "ERROR":
            raise status_error(thing)
        changes: list[ObservedObject] = []
        seen = _read(thing)
        if seen is not None and kind in ("ADDED", "MODIFIED", "DELETED"):
            key = (seen.namespace, seen.name)
            known = self._known.pop(key, None)
            if known not in (None, seen.uid):
                changes.append(ObservedObject(seen.namespace, seen.name, str(known), {}, gone=True))
            if kind == "DELETED":
                changes.append(ObservedObject(seen.namespace, seen.name, seen.uid, thing, gone=True))
            else:
                self._known[key] = seen.uid
                changes.append(seen)
        version = as_mapping(thing.get("metadata")).get("resourceVersion")
        if isinstance(version, str) and version:
            self._version = version
        return changes

    async def _pause(self) -> None:
        await asyncio.sleep(doubled_pause(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, self._failures))


def _read(thing: Mapping[str, Any]) -> ObservedObject | None:
    metadata = as_mapping(thing.get("metadata"))
    name, uid = metadata.get("name"), metadata.get("uid")
    if not isinstance(name, str) or not isinstance(uid, str):
        return None  # a bookmark has a version and no name
    return ObservedObject(str(metadata.get("namespace") or ""), name, uid, thing)
