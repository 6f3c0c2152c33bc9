"""The audit log's chain of digests in PostgreSQL."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from reservation_core.adapters.postgres.connection import direct
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.history.audit_chain import AuditedEvent, Link, Removals
from reservation_core.ports.history.audit_chain import ChainHead, EventsAhead


class AuditChain(StatementRunner):
    """The links of the chain by position, and events by id."""

    async def take_turn(self) -> bool:
        """Lock the chain's state until the transaction ends; False when another transaction holds the lock."""
        return (await self._run("take_turn_at_chain")).scalar_one_or_none() is not None

    async def head(self) -> ChainHead:
        [row] = await direct.fetch(self._connection, "chain_head", {})
        return ChainHead(_link(row), row["chained_at"])

    async def start(self) -> int:
        """The position of the oldest link; later links can be verified."""
        position: int = (await self._run("chain_start")).scalar_one()
        return position

    async def ahead(self, after: int, limit: int) -> EventsAhead | None:
        """The next events after an id; None without any."""
        [row] = await direct.fetch(self._connection, "events_ahead", {"after": after, "limit": limit})
        return None if row["through"] is None else EventsAhead(row["through"], row["unbroken"])

    async def writers(self) -> frozenset[str]:
        """Open transactions that may have recorded events, by their locks."""
        return frozenset(row.writer for row in await self._run("event_writers"))

    async def events(self, after: int, through: int, limit: int) -> Sequence[AuditedEvent]:
        """Events after an id and up to another, in order."""
        rows = await self._run("events_between", after=after, through=through, limit=limit)
        return [AuditedEvent(*row) for row in rows]

    async def append(self, links: Sequence[Link], chained_at: datetime) -> None:
        """Append links, all in one statement."""
        await self._run(
            "append_to_chain",
            chained_at=chained_at,
            positions=[link.position for link in links],
            event_ids=[link.event_id for link in links],
            ats=[link.at for link in links],
            contents=[bytes.fromhex(link.content) for link in links],
            digests=[bytes.fromhex(link.digest) for link in links],
        )

    async def links(self, start: int, limit: int) -> Sequence[Link]:
        """Links from a position on."""
        return [
            _link(row) for row in await direct.fetch(self._connection, "chain_links", {"start": start, "limit": limit})
        ]

    async def first_since(self, at: datetime) -> int | None:
        """The position of the first link that was appended at a time or later."""
        position: int | None = (await self._run("first_chained_since", at=at)).scalar_one_or_none()
        return position

    async def removals(self) -> Removals:
        """The end of the events that the retention removed."""
        row = (await self._run("chain_removals")).one()
        return Removals(row.removed_before, row.removed_through)

    async def unchained_since(self, after: int) -> datetime | None:
        """The time of the oldest unchained event; None where all are chained."""
        at: datetime | None = (await self._run("oldest_unchained", after=after)).scalar_one_or_none()
        return at

    async def trim(self, limit: int) -> int:
        """Remove the oldest links of removed events, except the last of them; returns their number."""
        await self._run("begin_retention")
        return (await self._run("trim_chain", limit=limit)).rowcount


def _link(row: Mapping[str, Any]) -> Link:
    return Link(row["position"], row["event_id"], row["at"], row["content"].hex(), row["digest"].hex())
