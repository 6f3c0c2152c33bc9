"""The audit log over REST."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from gpu_dev.calls.calls import Calls, given
from gpu_dev.wire.audit_log import ChainHeadOut, ChainLineOut, EventOut
from gpu_dev.wire.base import Page
from reservation_core.domain.time_words import rfc3339


class EventCalls(Calls):
    """The audit log: actors, actions, subjects, times and reasons."""

    def listed(
        self,
        *,
        oldest_first: bool = False,
        kinds: Iterable[str] = (),
        actor: str | None = None,
        subject: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> Iterator[EventOut]:
        """Events in order; users who are no administrators must name a `subject` of their own."""
        params = given(
            actor=actor,
            subject=subject,
            from_=None if start is None else rfc3339(start),
            to=None if end is None else rfc3339(end),
            order="oldest" if oldest_first else None,
        )
        params["kind"] = sorted(kinds)
        return self._items(Page[EventOut], "/v1/events", params)

    def chain(self, *, start: datetime | None = None, end: datetime | None = None) -> Iterator[ChainLineOut]:
        """The events chained in [start, end), in the order of the chain, oldest first."""
        params = given(
            from_=None if start is None else rfc3339(start),
            to=None if end is None else rfc3339(end),
        )
        return self._items(Page[ChainLineOut], "/v1/events/chain", params)

    def chain_head(self) -> ChainHeadOut:
        """The newest link of the chain."""
        return self._get(ChainHeadOut, "/v1/events/chain/head")
