"""The chain of digests over the audit log, as it is kept and read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.history.audit_chain import AuditedEvent, Link, Removals


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The newest link, and when it was made."""

    link: Link
    chained_at: datetime


@dataclass(frozen=True, slots=True)
class EventsAhead:
    """How far the next events go, by their ids, and how far without a missing one (None: the first is missing)."""

    through: int
    unbroken: int | None


class AuditChain(Protocol):
    """Links by position; events by id."""

    async def take_turn(self) -> bool:
        """Keep everybody else from appending until this transaction ends; False where somebody else appends."""
        ...

    async def head(self) -> ChainHead:
        """The newest link."""
        ...

    async def start(self) -> int:
        """The position of the oldest link: what follows it can be checked."""
        ...

    async def ahead(self, after: int, limit: int) -> EventsAhead | None:
        """The next events after an id; None: there are none."""
        ...

    async def writers(self) -> frozenset[str]:
        """Transactions that may have recorded something and are not over."""
        ...

    async def events(self, after: int, through: int, limit: int) -> Sequence[AuditedEvent]:
        """Events after an id and up to another, in order."""
        ...

    async def append(self, links: Sequence[Link], chained_at: datetime) -> None:
        """Append links."""
        ...

    async def links(self, start: int, limit: int) -> Sequence[Link]:
        """Links from a position on."""
        ...

    async def first_since(self, at: datetime) -> int | None:
        """The position of the first link that was made at a time or later."""
        ...

    async def removals(self) -> Removals:
        """What the retention removed."""
        ...

    async def unchained_since(self, after: int) -> datetime | None:
        """When the next event to be chained was recorded; None where all are chained."""
        ...

    async def trim(self, limit: int) -> int:
        """Remove the oldest links whose events were removed, all but the last of them; returns how many."""
        ...
