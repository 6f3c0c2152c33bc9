"""What pages are told while they are open: that something of a kind has changed, never what.

One look at the record for all open pages of the process, when a wake-up came; a page then asks anew for what it shows,
with its own rights. A wake-up carries nothing, so what an event is about is read from the record.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator
from contextlib import contextmanager
from secrets import token_hex

from api_service.following import SharedWakeups
from api_service.web.event_ids import SeenIds
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.event_kinds import PeopleEventKind, known_kind
from reservation_core.ports.history.events import Recorded
from reservation_core.runtime.loops.loops import Loop

PAUSE_S = 0.5
"""Between two looks: a page hears of a change twice a second at most."""
SWEEP_S = 2.0
BEAT_S = 20.0
_LOOK_BACK = 500
"""When the first page opens, so many ids are looked through for some that have not come yet."""
_PAGE = 2000
_TOPICS_KEPT = 10_000
_MOST_DIGITS = 15


def topics_of(recorded: Recorded) -> frozenset[str]:
    """What pages show of this."""
    subject = recorded.subject or ""
    if subject.startswith("job-"):
        return frozenset({"now", "queue", "jobs", f"job:{subject}"})
    if subject.startswith("bkg-"):
        return frozenset({"now", "calendar", f"booking:{subject}"})
    if known_kind(PeopleEventKind, recorded.kind) is not None:
        return frozenset({"admin"})
    return frozenset({"now", "calendar", "admin"})


class PageSubscription:
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
        self._open: set[PageSubscription] = set()
        self._first = asyncio.Event()
        self._seen: SeenIds | None = None
        self._estimates: object = None
        # Positions: which looks there have been since pages were first open, and what each has found.
        self._since = ""
        self._looks = 0
        self._changed_in: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0

    @contextmanager
    def subscribed(self, topics: Iterable[str], position: str = "") -> Iterator[PageSubscription]:
        """A subscription for as long as the block runs, told what has changed since a `position`.

        Without a position, or with one that nobody knows any more, everything has.
        """
        subscription = PageSubscription(topics)
        self._open.add(subscription)
        self._first.set()
        if self._seen is not None:
            # Else nobody knows yet what is new from now on: the first look tells it.
            subscription.tell(self._changed_since(subscription.topics, position))
        try:
            yield subscription
        finally:
            self._open.discard(subscription)

    @property
    def open_pages(self) -> int:
        """How many are subscribed."""
        return len(self._open)

    @property
    def position(self) -> str:
        """How far pages are told by now: what is read after this, and subscribed from here, misses nothing."""
        return "" if self._seen is None else f"{self._since}.{self._looks}"

    async def run(self, loop: Loop) -> None:
        """Look and tell until cancelled. Nothing is read while no page is open.

        While looks fail, pages stay as they are; what happened meanwhile is read by the next that goes well.
        """

        async def once() -> None:
            if not self._open:
                self._first.clear()
                self._seen = None
                loop.went_well()
                await self._first.wait()
            ticket = self._wakeups.ticket()
            behind = await self._look()
            loop.went_well()
            await asyncio.sleep(0 if behind else PAUSE_S)
            if not behind:
                await self._wakeups.wait(ticket, SWEEP_S)

        await loop.repeat(once)

    async def _look(self) -> bool:
        """Read what is new, and tell it; whether there is more than was read."""
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
        self.tell(changed)
        return len(recorded) >= _PAGE

    def _begin(self, seen: SeenIds, estimates: object) -> None:
        """From here on it is known what is new. What happened since they were read is not: all pages are told all."""
        self._seen, self._estimates = seen, estimates
        self._since, self._looks, self._forgotten = token_hex(4), 0, 0
        self._changed_in.clear()
        for subscription in self._open:
            subscription.tell(subscription.topics)

    def tell(self, changed: Collection[str]) -> None:
        """Tell open pages of a change."""
        self._looks += 1
        for topic in changed:
            self._changed_in[topic] = self._looks
            self._changed_in.move_to_end(topic)
        while len(self._changed_in) > _TOPICS_KEPT:
            self._forgotten = self._changed_in.popitem(last=False)[1]
        for subscription in self._open if changed else ():
            subscription.tell(changed)

    def _changed_since(self, topics: Iterable[str], position: str) -> Iterable[str]:
        since, _, number = position.partition(".")
        if since != self._since or not (number.isascii() and number.isdecimal()) or len(number) > _MOST_DIGITS:
            return topics
        if int(number) < self._forgotten:
            return topics
        return [topic for topic in topics if self._changed_in.get(topic, 0) > int(number)]


async def messages(topics: LiveTopics, named: Iterable[str], position: str = "") -> AsyncGenerator[bytes]:
    """The stream of one page: an event for each of its topics that changed, a comment now and then."""
    with topics.subscribed(named, position) as subscription:
        yield b"retry: 2000\n\n"
        number = 0
        while True:
            changed = await subscription.changed(BEAT_S)
            number += 1
            yield b"".join(f"event: {topic}\ndata: {number}\n\n".encode() for topic in changed) or b": still here\n\n"
