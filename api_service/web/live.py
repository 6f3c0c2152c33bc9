"""What pages are told while they are open: that something of a kind has changed, never what.

One look at the record for all open pages of the process, when a wake-up came; a page then asks anew for what it shows,
with its own rights. A wake-up carries nothing, so what an event is about is read from the record.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager

import structlog

from api_service.following import SharedWakeups
from reservation_core.ports.events import Recorded
from reservation_core.ports.transactions import DatabaseUnavailableError, UnitOfWorkFactory

PAUSE_S = 0.5
"""Between two looks: a page hears of a change twice a second at most."""
SWEEP_S = 2.0
BEAT_S = 20.0
_LOOK_BACK = 200
"""Ids are given before transactions commit: so many are looked at again for one that came late."""
_PAGE = 2000
_GENERAL = frozenset({"now", "queue", "jobs", "calendar", "admin"})
_log = structlog.get_logger(__name__)


def topics_of(recorded: Recorded) -> frozenset[str]:
    """What pages show of this."""
    subject = recorded.subject or ""
    if subject.startswith("job-"):
        return frozenset({"now", "queue", "jobs", f"job:{subject}"})
    if subject.startswith("bkg-"):
        return frozenset({"now", "calendar", f"booking:{subject}"})
    if recorded.kind.startswith(("session_", "signed_", "notice_", "calendar_feed_")):
        return frozenset({"admin"})
    if recorded.kind.startswith(("user_", "token_", "project_")):
        return frozenset({"admin"})
    return frozenset({"now", "calendar", "admin"})


class Subscription:
    """What one open page waits for."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self._changed: set[str] = set()
        self._rung = asyncio.Event()

    def tell(self, topics: Iterable[str]) -> None:
        """These have changed."""
        mine = self.topics.intersection(topics)
        if mine:
            self._changed |= mine
            self._rung.set()

    async def changed(self, within_s: float) -> list[str]:
        """What has changed since the last time; nothing when the time ran out."""
        try:
            async with asyncio.timeout(within_s):
                await self._rung.wait()
        except TimeoutError:
            return []
        self._rung.clear()
        changed, self._changed = sorted(self._changed), set()
        return changed


class LiveTopics:
    """One look for all open pages."""

    def __init__(self, uow: UnitOfWorkFactory, wakeups: SharedWakeups) -> None:
        self._uow = uow
        self._wakeups = wakeups
        self._open: set[Subscription] = set()
        self._first = asyncio.Event()
        self._seen: deque[int] = deque(maxlen=4 * _LOOK_BACK)
        self._newest: int | None = None
        self._estimates: object = None

    @contextmanager
    def subscribed(self, topics: Iterable[str]) -> Iterator[Subscription]:
        """A subscription for as long as the block runs."""
        subscription = Subscription(topics)
        self._open.add(subscription)
        self._first.set()
        try:
            yield subscription
        finally:
            self._open.discard(subscription)

    @property
    def open_pages(self) -> int:
        """How many are subscribed."""
        return len(self._open)

    async def run(self) -> None:
        """Look and tell until cancelled. Nothing is read while no page is open."""
        while True:
            if not self._open:
                self._first.clear()
                self._newest = None
                await self._first.wait()
            ticket = self._wakeups.ticket()
            try:
                changed = await self._look()
            except DatabaseUnavailableError as error:
                # Pages stay as they are until it is back; what happened meanwhile is read then.
                _log.warning("changes_not_read", error=str(error))
                changed = frozenset()
            for subscription in self._open if changed else ():
                subscription.tell(changed)
            await asyncio.sleep(PAUSE_S)
            await self._wakeups.wait(ticket, SWEEP_S)

    async def _look(self) -> frozenset[str]:
        async with self._uow() as uow:
            estimates = await uow.events.estimates_as_of()
            if self._newest is None:
                # Whoever opened a page has just read it: nothing is known to have changed but what comes from now on.
                self._newest, self._estimates = await uow.events.newest(), estimates
                self._seen.clear()
                recorded = await uow.events.after(max(0, self._newest - _LOOK_BACK), _PAGE)
                self._seen.extend(each.id for each in recorded)
                return frozenset(_GENERAL)
            recorded = await uow.events.after(max(0, self._newest - _LOOK_BACK), _PAGE)
        changed: set[str] = set()
        if estimates != self._estimates:
            self._estimates = estimates
            changed.add("queue")
        known = frozenset(self._seen)
        for each in recorded:
            if each.id not in known:
                changed |= topics_of(each)
                self._seen.append(each.id)
                self._newest = max(self._newest, each.id)
        return frozenset(changed)


async def messages(topics: LiveTopics, named: Iterable[str]) -> AsyncGenerator[bytes]:
    """The stream of one page: an event for each of its topics that changed, a comment now and then."""
    with topics.subscribed(named) as subscription:
        yield b"retry: 2000\n\n"
        number = 0
        while True:
            changed = await subscription.changed(BEAT_S)
            number += 1
            yield b"".join(f"event: {topic}\ndata: {number}\n\n".encode() for topic in changed) or b": still here\n\n"
