"""What open pages are told, on a record that commits in any order and a database that comes and goes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api_service.following import SharedWakeups
from api_service.web.live import LiveTopics, PageSubscription, messages, topics_of
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.history.events import Recorded
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.ports.wakeups import Wakeups
from reservation_core.runtime.loops.loops import Loops
from tests.virtual_time import run_virtually

LONG_S = 10.0
"""Far longer than a page has to wait for anything."""


class Record:
    """The record of events, as a unit of work shows it; `reads` counts the looks."""

    def __init__(self) -> None:
        self.committed: dict[int, Recorded] = {}
        self.estimates = (0, None)
        self.away = False
        self.reads = 0

    def commit(self, number: int, subject: str | None, kind: str = "changed") -> None:
        """An event comes to be seen."""
        self.committed[number] = Recorded(number, kind, subject)

    @asynccontextmanager
    async def uow(self) -> AsyncIterator[Any]:
        """A unit of work."""
        if self.away:
            raise DatabaseUnavailableError("away")
        self.reads += 1
        yield SimpleNamespace(events=self)

    async def newest(self) -> int:
        return max(self.committed, default=0)

    async def after(self, event_id: int, limit: int, late: Collection[int] = ()) -> list[Recorded]:
        new = sorted(committed_id for committed_id in self.committed if committed_id > event_id)[:limit]
        return [self.committed[committed_id] for committed_id in [*sorted(set(late) & self.committed.keys()), *new]]

    async def estimates_as_of(self) -> tuple[int, None]:
        return self.estimates


class Silent:
    """No wake-up ever comes: the sweep finds what there is."""

    @asynccontextmanager
    async def subscribe(self, _channel: object) -> AsyncIterator["Silent"]:
        yield self

    async def wait(self, timeout: timedelta) -> bool:
        await asyncio.sleep(timeout.total_seconds())
        return False


def _virtually(story: Callable[[LiveTopics, Record], Awaitable[None]]) -> None:
    async def told() -> None:
        record = Record()
        live = LiveTopics(cast("UnitOfWorkFactory", record.uow), SharedWakeups(cast("Wakeups", Silent())))
        running = asyncio.create_task(live.run(Loops()["open_pages"]))
        try:
            await story(live, record)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run_virtually(told())


async def _settled(subscription: PageSubscription) -> None:
    """Until everything that there was has been told."""
    while await subscription.changed(LONG_S):
        pass


@pytest.mark.parametrize(
    ("subject", "kind", "topics"),
    [
        ("job-a", "started", {"now", "queue", "jobs", "job:job-a"}),
        ("bkg-b", "booking_moved", {"now", "calendar", "booking:bkg-b"}),
        ("mnt-c", "maintenance_started", {"now", "calendar", "admin"}),
        ("node-1", "node_changed", {"now", "calendar", "admin"}),
        ("node-1/3", "gpu_changed", {"now", "calendar", "admin"}),
        ("tok-1", "token_revoked", {"admin"}),
        ("alice", "user_disabled", {"admin"}),
        ("tok-2", "session_begun", {"admin"}),
        (None, "policy_changed", {"now", "calendar", "admin"}),
    ],
)
def test_pages_hear_of_what_they_show(subject: str | None, kind: str, topics: set[str]) -> None:
    assert topics_of(Recorded(1, kind, subject)) == topics


def test_a_page_hears_of_its_own_topics_alone() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        with live.subscribed({"job:job-a"}) as one, live.subscribed({"calendar"}) as other:
            await _settled(one)
            await _settled(other)
            record.commit(1, "job-a")
            assert await one.changed(LONG_S) == ["job:job-a"]
            record.commit(2, "job-b")
            record.commit(3, "bkg-c")
            assert await other.changed(LONG_S) == ["calendar"]
            assert await one.changed(LONG_S) == []
            record.estimates = (1, None)
            assert await other.changed(LONG_S) == []

    _virtually(story)


def test_pages_that_show_use_hear_of_new_samples_and_of_nothing_else() -> None:
    async def story() -> None:
        samples = [datetime(2026, 7, 1, tzinfo=UTC)]
        looks = 0

        async def newest() -> datetime | None:
            nonlocal looks
            looks += 1
            return samples[-1]

        record = Record()
        live = LiveTopics(cast("UnitOfWorkFactory", record.uow), SharedWakeups(cast("Wakeups", Silent())), newest)
        running = asyncio.create_task(live.run(Loops()["open_pages"]))
        with live.subscribed({"now"}) as other:
            await _settled(other)
            assert looks == 0  # nobody shows use: no sample is read
            with live.subscribed({"use", "job:job-a"}) as page:
                await _settled(page)
                assert await page.changed(LONG_S) == []
                before = looks
                samples.append(samples[-1] + timedelta(seconds=10))
                assert await page.changed(LONG_S) == ["use"]
                assert await page.changed(4 * LONG_S) == []
                assert looks - before <= 1 + 6 * LONG_S / 5
            assert await other.changed(LONG_S) == []
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtually(story())


def test_the_line_is_told_when_estimates_change() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        with live.subscribed({"queue"}) as subscription:
            await _settled(subscription)
            record.estimates = (1, None)
            assert await subscription.changed(LONG_S) == ["queue"]

    _virtually(story)


def test_an_event_that_commits_after_greater_ones_is_told() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        record.commit(1, "job-a")
        record.commit(4, "job-a")
        with live.subscribed({"job:job-z", "calendar"}) as subscription:
            await _settled(subscription)
            record.commit(2, "job-z")  # its transaction was under way when the page opened
            assert await subscription.changed(LONG_S) == ["job:job-z"]
            record.commit(5000, "node-1")
            assert await subscription.changed(LONG_S) == ["calendar"]
            await asyncio.sleep(30)
            record.commit(9, "job-z")  # far behind, and late
            assert await subscription.changed(LONG_S) == ["job:job-z"]
            assert await subscription.changed(LONG_S) == []

    _virtually(story)


def test_more_than_a_look_reads_is_told_without_waiting() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        with live.subscribed({"job:job-last"}) as subscription:
            await _settled(subscription)
            for number in range(1, 10_001):
                record.commit(number, "job-other")
            record.commit(10_001, "job-last")
            assert await subscription.changed(3.0) == ["job:job-last"]

    _virtually(story)


def test_what_happens_while_the_database_is_away_is_told_when_it_is_back() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        with live.subscribed({"job:job-a"}) as subscription:
            await _settled(subscription)
            record.away = True
            assert await subscription.changed(300.0) == []
            record.commit(1, "job-a")
            record.away = False
            assert await subscription.changed(LONG_S) == ["job:job-a"]

    _virtually(story)


def test_a_page_that_opens_while_the_database_is_away_is_told_all_when_it_is_back() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        record.away = True
        with live.subscribed({"now", "job:job-a"}) as subscription:
            assert await subscription.changed(LONG_S) == []
            record.away = False
            assert await subscription.changed(LONG_S) == ["job:job-a", "now"]

    _virtually(story)


def test_nothing_is_read_while_nobody_listens() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        await asyncio.sleep(100)
        assert record.reads == 0
        with live.subscribed({"now"}) as subscription:
            await _settled(subscription)
        assert live.open_pages == 0
        await asyncio.sleep(LONG_S)
        before = record.reads
        await asyncio.sleep(100)
        assert record.reads == before
        assert live.position == ""

    _virtually(story)


def test_what_changes_between_a_page_and_its_stream_is_told_first() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        with live.subscribed({"now"}) as early:
            await _settled(early)
            position = live.position  # a page is read here
            record.commit(1, "job-a")
            assert await early.changed(LONG_S) == ["now"]
            with live.subscribed({"job:job-a", "calendar"}, position) as late:
                assert await late.changed(0) == ["job:job-a"]
                assert await late.changed(LONG_S) == []
            with live.subscribed({"job:job-a", "calendar"}, live.position) as later:
                assert await later.changed(LONG_S) == []

    _virtually(story)


@pytest.mark.parametrize("position", ["", "of-another-process.3", "x.y", ".", "{since}.", "{since}.-1", "{since}.²"])
def test_without_a_position_that_is_known_everything_is_told(position: str) -> None:
    async def story(live: LiveTopics, _record: Record) -> None:
        with live.subscribed({"now"}) as early:
            await _settled(early)
            since = live.position.partition(".")[0]
            with live.subscribed({"job:job-a", "queue"}, position.format(since=since)) as late:
                assert await late.changed(0) == ["job:job-a", "queue"]

    _virtually(story)


def test_a_position_from_before_nobody_listened_is_not_known_any_more() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        with live.subscribed({"now"}) as early:
            await _settled(early)
            position = live.position
        await asyncio.sleep(LONG_S)
        record.commit(1, "job-a")  # nobody looks
        with live.subscribed({"job:job-a"}, position) as late:
            assert await late.changed(LONG_S) == ["job:job-a"]

    _virtually(story)


def test_a_stream_names_what_changed_and_says_now_and_then_that_it_is_there() -> None:
    async def story(live: LiveTopics, record: Record) -> None:
        stream = messages(live, ["now", "job:job-a"])
        assert await anext(stream) == b"retry: 2000\n\n"
        assert await anext(stream) == b"event: job:job-a\ndata: 1\n\nevent: now\ndata: 1\n\n"
        assert await anext(stream) == b"event: beat\ndata: 2\n\n"
        record.commit(1, "bkg-b")
        assert await anext(stream) == b"event: now\ndata: 3\n\n"
        await stream.aclose()
        assert live.open_pages == 0

    _virtually(story)
