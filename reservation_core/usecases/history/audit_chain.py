"""Chain the audit log's events after they are committed, so that writers do not wait; and read the chain.

Ids are drawn before the commit, so an event may become visible after one with a greater id. The chain follows the ids:
at a gap it waits for all transactions that were writing then; an id that is missing even then was never recorded.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.errors import ChainTrimmedError, ForbiddenError
from reservation_core.domain.history.audit_chain import AuditedEvent, ChainLine, Link, chained, lines
from reservation_core.ports.history.audit_chain import ChainHead
from reservation_core.ports.people.identities import Principal

BATCH = 500
_AT_ONCE = 50
_POLLS = 40
_POLL_EVERY_S = 0.05
_MOST_EVENTS = 10_000
"""In a page: more events than links exist only after a manipulation."""
_FIRST_ID = -(2**63)


@dataclass(frozen=True, slots=True)
class ChainStretch:
    """Links after one position, up to another."""

    after: int
    through: int


@dataclass(frozen=True, slots=True)
class ChainPage:
    """Some lines, and the rest of the stretch."""

    lines: tuple[ChainLine, ...]
    rest: ChainStretch | None


@dataclass(frozen=True, slots=True)
class ChainStanding:
    """The newest link, the position of the first verifiable one, and the time of the oldest unchained event."""

    head: ChainHead
    first: int
    unchained_since: datetime | None


async def chain_events(uow_factory: UnitOfWorkFactory, batch: int = BATCH) -> int:
    """Chain the next events; returns their number. 0: there are none, or another process chains or still writes."""
    async with uow_factory(one_statement=True) as uow:
        head = (await uow.audit_chain.head()).link
        ahead = await uow.audit_chain.ahead(head.event_id, batch)
        if ahead is None:
            return 0
        # After reading the events: a writer with a missing id already held its lock then.
        writers = frozenset[str]() if ahead.unbroken == ahead.through else await uow.audit_chain.writers()
    through = ahead.through if await _are_over(uow_factory, writers) else ahead.unbroken
    if through is None:
        return 0
    async with uow_factory() as uow:
        if not await uow.audit_chain.take_turn():
            return 0
        latest = await uow.audit_chain.head()
        if latest.link != head:
            return 0
        events = await uow.audit_chain.events(head.event_id, through, batch)
        links = await _chained(head, events)
        await uow.audit_chain.append(links, max(await uow.now(), latest.chained_at))
    return len(links)


async def _chained(head: Link, events: Sequence[AuditedEvent]) -> list[Link]:
    """Make links, while yielding to the planner in the same process."""
    links: list[Link] = []
    for link in chained(head, events):
        links.append(link)
        if len(links) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return links


async def _are_over(uow_factory: UnitOfWorkFactory, writers: frozenset[str]) -> bool:
    """Wait a few seconds for the end of these transactions; whether all have ended."""
    for _ in range(_POLLS):
        if not writers:
            return True
        await asyncio.sleep(_POLL_EVERY_S)
        async with uow_factory(one_statement=True) as uow:
            writers &= await uow.audit_chain.writers()
    return not writers


async def chain_standing(uow: UnitOfWork) -> ChainStanding:
    """The extent of the chain."""
    head = await uow.audit_chain.head()
    first = await uow.audit_chain.start() + 1
    return ChainStanding(head, first, await uow.audit_chain.unchained_since(head.link.event_id))


def require_chain_reader(principal: Principal) -> None:
    """Raises ForbiddenError for users who are not administrators."""
    if not principal.is_admin:
        raise ForbiddenError(
            "The chain of the audit log is for administrators. `gpu-dev audit --subject ID` shows what concerns you."
        )


async def read_stretch(uow: UnitOfWork, since: datetime | None, until: datetime | None) -> ChainStretch:
    """The links that were appended in [since, until); None: from the first verifiable one, up to the newest."""
    start, head = await uow.audit_chain.start(), (await uow.audit_chain.head()).link.position
    first = start + 1 if since is None else await uow.audit_chain.first_since(since)
    beyond = None if until is None else await uow.audit_chain.first_since(until)
    return ChainStretch(head if first is None else max(start, first - 1), head if beyond is None else beyond - 1)


async def read_chain(uow: UnitOfWork, stretch: ChainStretch, limit: int) -> ChainPage:
    """Read the next lines. Raises ChainTrimmedError when the retention has removed their beginning."""
    start = await uow.audit_chain.start()
    if stretch.after < start:
        raise ChainTrimmedError(
            f"Retention has removed the links up to position {start} since this export began. Begin again."
        )
    count = min(limit, max(0, stretch.through - stretch.after))
    links = [link for link in await uow.audit_chain.links(stretch.after, count + 1) if link.position <= stretch.through]
    before = links.pop(0) if links and links[0].position == stretch.after else None
    if not links:
        return ChainPage((), None)
    # Events before the first link of all are shown with it.
    after_id = _FIRST_ID if stretch.after == start or before is None else before.event_id
    events = await uow.audit_chain.events(after_id, links[-1].event_id, _MOST_EVENTS)
    # Read after the events, so that events that were removed in between are in the removals.
    page = tuple(lines(before, links, events, await uow.audit_chain.removals()))
    at_end = links[-1].position >= stretch.through
    return ChainPage(page, None if at_end else ChainStretch(links[-1].position, stretch.through))
