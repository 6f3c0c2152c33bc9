"""Writes Kubernetes Events about objects in the background, at a bounded rate.

When the queue of Events is full, the oldest are dropped and counted: the objects themselves hold what matters.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import structlog

from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError
from reservation_core.adapters.kubernetes.api_server.plain_json import format_time
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import ClusterUnavailableError

_MOST_NOTE = 1000
"""Bytes of UTF-8 in an Event's note; the API takes 1,024."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about, of API version v1."""

    namespace: str
    name: str
    uid: str
    kind: str = "Pod"


class _Note(NamedTuple):
    """What an Event is built of once it is written: of many that come at once, most are dropped."""

    about: Regarding
    reason: str
    text: str
    action: str
    warning: bool
    at: datetime


class EventWriter:
    """Writes `events.k8s.io/v1` as a `controller` (`gpu-scheduler`) and its replica `instance`."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        controller: str,
        instance: str,
        *,
        per_s: float = 50.0,
        most_waiting: int = 2000,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._controller = controller
        self._instance = instance[:128]
        self._pause_s = 1 / per_s
        self._waiting: deque[_Note] = deque(maxlen=most_waiting)
        self._more = asyncio.Event()
        self.left_out = 0

    def is_full(self) -> bool:
        """Whether the next Event that is queued drops the oldest."""
        return len(self._waiting) == self._waiting.maxlen

    def add(self, about: Regarding, reason: str, note: str, *, action: str, warning: bool) -> None:
        """Queue an Event. `reason` and `action` are in CamelCase."""
        if self.is_full():
            self.left_out += 1
        self._waiting.append(_Note(about, reason, note, action, warning, self._clock.now()))
        self._more.set()

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            await self._more.wait()
            await self.write_all()
            self._more.clear()

    async def write_all(self) -> None:
        """Write the Events that are queued now."""
        while self._waiting:
            note = self._waiting.popleft()
            path = f"/apis/events.k8s.io/v1/namespaces/{note.about.namespace}/events"
            try:
                await self._transport.request("POST", path, body=self._event(note))
            except (ApiServerError, ClusterUnavailableError) as problem:
                # Nothing depends on Events: the pod's condition says the same.
                self.left_out += 1
                _log.warning("an Event could not be written", why=str(problem))
            await asyncio.sleep(self._pause_s)

    def _event(self, note: _Note) -> Mapping[str, Any]:
        about = note.about
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name[:200].rstrip('-.')}.{secrets.token_hex(8)}", "namespace": about.namespace,
            },
            "eventTime": format_time(note.at),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": note.action,
            "reason": note.reason,
            "note": note.text.encode()[:_MOST_NOTE].decode(errors="ignore"),
            "type": "Warning" if note.warning else "Normal",
            "regarding": {
                "apiVersion": "v1", "kind": about.kind,
                "namespace": about.namespace, "name": about.name, "uid": about.uid,
            },
        }  # fmt: skip
