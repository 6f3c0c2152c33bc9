"""What quotas read of the past: sums by week and what is not summed yet, against every row of random ledgers."""

import asyncio
import random
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.policy.policies import Policies
from reservation_core.adapters.postgres.policy.usage import Usage
from reservation_core.domain.policy.quota_windows import WEEK, Held, overlap, peak, week_start
from reservation_core.domain.policy.rules import Holding
from reservation_core.domain.policy.usage import SUMMED_AFTER
from reservation_core.domain.statuses import ReservationKind

MINUTE = timedelta(minutes=1)
# Closed rows of the ledger are put in as they are made elsewhere: opened, then closed.
OPEN = (
    "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
    "VALUES (:id, 1, :gpu, 0, tstzrange(:start, :end), false, :start)"
)
CLOSE = "UPDATE allocations SET released_at = upper(during) WHERE reservation_id = :id AND upper(during) <= :now"

Line = tuple[str, str | None, str, datetime]


class Ledger:
    """A random ledger of jobs and bookings over three weeks, most of it over, and the same in memory."""

    def __init__(self, seed: Any, number: int) -> None:
        self.seed = seed
        self.random = random.Random(number)
        self.now: datetime = seed.now + timedelta(
            days=self.random.randrange(8), microseconds=self.random.randrange(9**9)
        )
        self.users: dict[str, int] = {}
        self.rows: list[tuple[str, Holding]] = []

    async def fill(self) -> None:
        for name in ("ada", "bob"):
            self.users[name] = await self.seed.user(name)
        for number, gpu_type in enumerate(("h100", "t4")):
            for card in await self.seed.node(f"node-{number}", cards=2, gpu_type=gpu_type):
                at = self.now - 3 * WEEK
                while at < self.now + WEEK:
                    at = await self.something(card, gpu_type, at + self.length(30))

    def length(self, hours: float) -> timedelta:
        return timedelta(microseconds=self.random.randrange(1, int(hours * 3600 * 10**6)))

    async def something(self, card: int, gpu_type: str, start: datetime) -> datetime:
        user = self.random.choice(sorted(self.users))
        project = self.random.choice((None, "vision"))
        booking = self.random.random() < 0.3
        end = start + self.length(0.1 if self.random.random() < 0.3 else 40)
        if start <= self.now < end and self.random.random() < 0.5:
            end = self.now - timedelta(microseconds=self.random.randrange(4 * 60 * 10**6))
            start = min(start, end - MINUTE)
        over = end <= self.now
        name = f"{'bkg' if booking else 'job'}-{len(self.rows)}"
        statuses = ("ended", "confirmed") if booking else ("succeeded", "queued")
        await self.seed.job(
            name, self.users[user], statuses[not over], kind="booking" if booking else "job",
            project=project, finished_at=end if over else None, created_at=start,
        )  # fmt: skip
        await self.seed.run(OPEN, id=name, gpu=card, start=start, end=end)
        await self.seed.run(CLOSE, id=name, now=self.now)
        kind = ReservationKind.BOOKING if booking else ReservationKind.JOB
        self.rows.append((name, Holding(name, kind, user, project, gpu_type, 1, start, end)))
        return end


def by_week(holdings: list[Holding], since: datetime) -> Any:
    """GPU-seconds; a sum that is told as so many cards for so long is a microsecond off for each card at most."""
    found: defaultdict[Line, timedelta] = defaultdict(timedelta)
    for holding in holdings:
        week = since
        while week < holding.end:
            time = holding.gpus * overlap(holding.start, holding.end, week, week + WEEK)
            if time:
                found[holding.user, holding.project, holding.gpu_type, week] += time
            week += WEEK
    return pytest.approx({line: time.total_seconds() for line, time in found.items()}, rel=0, abs=1e-4)


async def summed(engine: AsyncEngine, before: datetime, limit: int) -> int:
    async with engine.begin() as connection:
        return await Usage(connection).sum_up_given_back(before, limit)


@pytest.mark.parametrize("number", range(3))
async def test_what_was_held_in_weeks_is_the_same_however_much_is_summed(
    seed: Any, engine: AsyncEngine, number: int
) -> None:
    ledger = Ledger(seed, number)
    await ledger.fill()
    now, monday = ledger.now, week_start(ledger.now)
    everything = [holding for _, holding in ledger.rows]
    this_minute = now.replace(second=0, microsecond=0)
    # Nothing summed, some of it, all that may be: the same answers.
    for before, limit in ((now - WEEK, 20), (now - SUMMED_AFTER, 7), (now - SUMMED_AFTER, 1000), (now, 0)):
        async with engine.begin() as connection:
            policies = Policies(connection)
            spent = await policies.spent_by_all(monday, now)
            own = await policies.spent_by_all(monday, now, [ledger.users["ada"]])
            for known_from in (monday - WEEK, monday, monday + WEEK):
                for project in (None, "vision"):
                    view = await policies.usage(ledger.users["ada"], project, known_from, now)
                    mine = [
                        holding
                        for holding in everything
                        if holding.user == "ada" or (project and holding.project == project)
                    ]
                    assert by_week(list(view.holdings), known_from).expected == by_week(mine, known_from)
                    # Sums at one moment from this minute on, and bookings one by one, are as they are.
                    for at in (max(this_minute, known_from), max(now, known_from) + timedelta(hours=30)):
                        end = at + timedelta(hours=9)
                        assert peak(held(view.holdings), at, end) == peak(held(mine), at, end)
                    assert bookings(list(view.holdings), known_from) == bookings(mine, known_from)
        over = [holding for holding in everything if holding.end <= now]
        assert by_week(list(spent), monday).expected == by_week(over, monday)
        assert by_week(list(own), monday).expected == by_week(
            [holding for holding in over if holding.user == "ada"], monday
        )
        await summed(engine, before, limit)
    assert await seed.run("SELECT count(*) FROM gpu_time_given_back") > 0


def held(holdings: Any) -> list[Held]:
    return [Held(holding.gpus, holding.start, holding.end) for holding in holdings]


def bookings(holdings: list[Holding], known_from: datetime) -> set[tuple[str, datetime, datetime]]:
    return {
        (holding.reservation_id, holding.start, holding.end)
        for holding in holdings
        if holding.kind is ReservationKind.BOOKING and holding.end > known_from
    }


async def test_several_who_sum_up_at_once_count_everything_once(seed: Any, engine: AsyncEngine) -> None:
    ledger = Ledger(seed, 99)
    await ledger.fill()
    closed = [holding for _, holding in ledger.rows if holding.end <= ledger.now]
    counts = [1]
    total = 0
    while any(counts):
        counts = await asyncio.gather(*(summed(engine, ledger.now, 5) for _ in range(4)))
        total += sum(counts)
    assert total == len(closed)
    assert await seed.run("SELECT count(*) FROM given_back") == 0
    micros = sum((holding.end - holding.start) // timedelta(microseconds=1) for holding in closed)
    assert await seed.run("SELECT CAST(sum(gpu_us) AS bigint) FROM gpu_time_given_back") == micros


async def test_only_a_weeks_beginning_can_be_asked_from(engine: AsyncEngine, seed: Any) -> None:
    async with engine.begin() as connection:
        with pytest.raises(ValueError, match="no beginning of a week"):
            await Policies(connection).spent_by_all(seed.now, seed.now)


async def test_what_was_given_back_is_history(seed: Any) -> None:
    user, [card, _] = await seed.user(), await seed.node()
    await seed.job("job-a", user)
    await seed.run(OPEN, id="job-a", gpu=card, start=seed.now, end=seed.now + seed.hour)
    await seed.run(CLOSE, id="job-a", now=seed.now + seed.hour)
    for change in (
        "UPDATE allocations SET during = tstzrange(lower(during), upper(during) + interval '1 hour')",
        "UPDATE allocations SET released_at = NULL",
        "DELETE FROM allocations",
    ):
        with pytest.raises(IntegrityError, match="closed"):
            await seed.run(change)


async def test_what_lies_within_a_booking_and_maintenance_are_not_summed(seed: Any, engine: AsyncEngine) -> None:
    user, [one, two] = await seed.user(), await seed.node()
    end = seed.now + seed.hour
    await seed.job("mnt-a", user, "ended", kind="maintenance", finished_at=end)
    await seed.job("bkg-a", user, "confirmed", kind="booking")
    await seed.job("job-a", user, "succeeded", booking_id="bkg-a", finished_at=end)
    for name, card in (("mnt-a", two), ("bkg-a", one)):
        await seed.run(OPEN, id=name, gpu=card, start=seed.now, end=end)
    await seed.run(OPEN.replace("held,", "held, booking_id,").replace("false,", "false, 'bkg-a',"),
                   id="job-a", gpu=one, start=seed.now, end=end)  # fmt: skip
    for name in ("mnt-a", "job-a"):
        await seed.run(CLOSE, id=name, now=end)
    assert await seed.run("SELECT count(*) FROM given_back") == 1
    assert await summed(engine, end, 10) == 1
    assert await seed.run("SELECT count(*) FROM gpu_time_given_back") == 0


async def test_a_past_of_several_cards_at_once_is_not_in_the_way_of_now(seed: Any, engine: AsyncEngine) -> None:
    """As one card for twice the time it would reach beyond this moment."""
    user, cards = await seed.user(), await seed.node(cards=4)
    monday = week_start(seed.now)
    end = seed.now - 10 * MINUTE
    await seed.job("job-a", user, "succeeded", finished_at=end)
    for card in cards:
        await seed.run(OPEN, id="job-a", gpu=card, start=monday, end=end)
    await seed.run(CLOSE, id="job-a", now=seed.now)
    assert await summed(engine, seed.now - SUMMED_AFTER, 10) == 4
    async with engine.begin() as connection:
        view = await Policies(connection).usage(user, None, monday, seed.now)
    assert len(view.holdings) == 1
    this_minute = seed.now.replace(second=0, microsecond=0)
    assert peak(held(view.holdings), this_minute, seed.now + WEEK) == 0
    assert by_week(list(view.holdings), monday).expected == {
        ("ada", None, "h100", monday): pytest.approx(4 * (end - monday).total_seconds())
    }
