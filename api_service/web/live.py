"""Notify open pages that a topic has changed, not what has changed.

After a wake-up, the process reads the audit log once for all its open pages; each page then requests its parts again,
with its own rights. A wake-up carries no data, so the subject of an event is read from the log.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from secrets import token_hex

from api_service.following import SharedWakeups
from api_service.web.event_ids import SeenIds
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.event_kinds import PeopleEventKind, known_kind
from reservation_core.ports.history.events import Recorded
from reservation_core.runtime.loops.loops import Loop

PAUSE_S = 0.5
"""Between two reads: a page is notified twice a second at most."""
SWEEP_S = 2.0
BEAT_S = 20.0
USE = "use"
"""The topic of pages that show how GPUs are used now."""
_USE_EVERY_S = 5.0
"""Between two looks at samples, which come every 10 seconds."""
_LOOK_BACK = 500
"""Ids before the newest that are read when the first page opens: some may not have appeared yet."""
_PAGE = 2000
_TOPICS_KEPT = 10_000
_MOST_DIGITS = 15


def topics_of(recorded: Recorded) -> frozenset[str]:
    """The topics of an event."""
    subject = recorded.subject or ""
    if subject.startswith("job-"):
        return frozenset({"now", "queue", "jobs", f"job:{subject}"})
    if subject.startswith("bkg-"):
        return frozenset({"now", "calendar", f"booking:{subject}"})
    if known_kind(PeopleEventKind, recorded.kind) is not None:
        return frozenset({"admin"})
    return frozenset({"now", "calendar", "admin"})


class PageSubscription:
    """The topics that one open page waits for."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = frozenset(topics)
        self._changed: set[str] = set()
        self._rung = asyncio.Event()

    def notify(self, topics: Iterable[str]) -> None:
        """Note changed topics."""
        mine = self.topics.intersection(topics)
        if mine:
            self._changed |= mine
            self._rung.set()

    async def changed(self, within_s: float) -> list[str]:
        """The topics that changed since the last call; empty after a timeout."""
        try:
            async with asyncio.timeout(within_s):
                await self._rung.wait()
        except TimeoutError:
            return []
        self._rung.clear()
        changed, self._changed = sorted(self._changed), set()
        return changed


class LiveTopics:
    """Follows the audit log for all open pages. `newest_sample`: when the newest sample of use was taken."""

    def __init__(
        self,
        uow: UnitOfWorkFactory,
        wakeups: SharedWakeups,
        newest_sample: Callable[[], Awaitable[datetime | None]] | None = None,
    ) -> None:
        self._uow = uow
        self._newest_sample = newest_sample
        self._known_sample: datetime | None = None
        self._use_due = 0.0
        self._wakeups = wakeups
        self._open: set[PageSubscription] = set()
        self._first = asyncio.Event()
        self._seen: SeenIds | None = None
        self._estimates: object = None
        # Positions count reads since the first page was open; each topic has the read that found it changed.
        self._since = ""
        self._looks = 0
        self._changed_in: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0

    @contextmanager
    def subscribed(self, topics: Iterable[str], position: str = "") -> Iterator[PageSubscription]:
        """A subscription while the block runs; it begins with what has changed since a `position`.

        Without a known position, all topics have.
        """
        subscription = PageSubscription(topics)
        self._open.add(subscription)
        self._first.set()
        if self._seen is not None:
            # Otherwise the first read notifies it.
            subscription.notify(self._changed_since(subscription.topics, position))
        try:
            yield subscription
        finally:
            self._open.discard(subscription)

    @property
    def open_pages(self) -> int:
        return len(self._open)

    @property
    def position(self) -> str:
        """How far pages were notified: a subscription from here misses nothing that is read after this."""
        return "" if self._seen is None else f"{self._since}.{self._looks}"

    async def run(self, loop: Loop) -> None:
        """Read and notify until cancelled. Nothing is read while no page is open.

        After a failed read pages stay as they are; the next read includes what they missed.
        """

        async def once() -> None:
            if not self._open:
                self._first.clear()
                self._seen = None
                loop.note_success()
                await self._first.wait()
            ticket = self._wakeups.ticket()
            behind = await self._look()
            await self._look_at_use()
            loop.note_success()
            await asyncio.sleep(0 if behind else PAUSE_S)
            if not behind:
                await self._wakeups.wait(ticket, SWEEP_S)

        await loop.repeat(once)

    async def _look(self) -> bool:
        """Read new events and notify pages; whether more events wait."""
        at = asyncio.get_running_loop().time()
        async with self._uow() as uow:
            estimates = await uow.events.estimates_as_of()
            if self._seen is None:
                seen = SeenIds(max(0, await uow.events.newest() - _LOOK_BACK))
                recorded = await uow.events.after(seen.newest, _PAGE)
            else:
                recorded = await uow.events.after(self._seen.newest, _PAGE, self._seen.missing)
        if self._seen is None:
            seen.saw((seen_id.id for seen_id in recorded), at)
            self._begin(seen, estimates)
            return False
        changed = {topic for seen_id in recorded for topic in topics_of(seen_id)}
        if estimates != self._estimates:
            self._estimates = estimates
            changed.add("queue")
        self._seen.saw((seen_id.id for seen_id in recorded), at)
        self._seen.give_up(at)
        self.notify(changed)
        return len(recorded) >= _PAGE

    async def _look_at_use(self) -> None:
        """Notify pages that show use when there are new samples."""
        at = asyncio.get_running_loop().time()
        if self._newest_sample is None or at < self._use_due or not any(USE in page.topics for page in self._open):
            return
        self._use_due = at + _USE_EVERY_S
        newest = await self._newest_sample()
        if newest != self._known_sample:
            self._known_sample = newest
            self.notify({USE})

    def _begin(self, seen: SeenIds, estimates: object) -> None:
        """Start to follow the log. All open pages reload: what changed before this read is unknown."""
        self._seen, self._estimates = seen, estimates
        self._since, self._looks, self._forgotten = token_hex(4), 0, 0
        self._changed_in.clear()
        for subscription in self._open:
            subscription.notify(subscription.topics)

    def notify(self, changed: Collection[str]) -> None:
        """Notify open pages of changed topics."""
        self._looks += 1
        for topic in changed:
            self._changed_in[topic] = self._looks
            self._changed_in.move_to_end(topic)
        while len(self._changed_in) > _TOPICS_KEPT:
            self._forgotten = self._changed_in.popitem(last=False)[1]
        for subscription in self._open if changed else ():
            subscription.notify(changed)

    def _changed_since(self, topics: Iterable[str], position: str) -> Iterable[str]:
        since, _, number = position.partition(".")
        if since != self._since or not (number.isascii() and number.isdecimal()) or len(number) > _MOST_DIGITS:
            return topics
        if int(number) < self._forgotten:
            return topics
        return [topic for topic in topics if self._changed_in.get(topic, 0) > int(number)]


async def messages(topics: LiveTopics, named: Iterable[str], position: str = "") -> AsyncGenerator[bytes]:
    """One page's stream: an event for each changed topic, a `beat` without one, by which a page knows it is heard."""
    with topics.subscribed(named, position) as subscription:
        yield b"retry: 2000\n\n"
        number = 0
        while True:
            changed = await subscription.changed(BEAT_S)
            number += 1
            yield b"".join(f"event: {topic}\ndata: {number}\n\n".encode() for topic in changed or ("beat",))
