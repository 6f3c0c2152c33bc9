"""Usage on random ledgers: against an oracle, and with sums that are the ledger's own to the microsecond."""

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from math import exp2, log
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.policy.usage import Usage
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import GpuTime, steps_of

TYPES = ("h100", "t4")
PROJECTS = (None, "vision", "speech")
_RETRIED = {"retry_max": 1, "retry_on": ["failed"], "retried": 1}


@dataclass
class Row:
    """A row of the common layer, with what is known of its use: [from, to) in which a pod ran."""

    user: str
    project: str | None
    gpu_type: str
    start: datetime
    end: datetime
    ran: list[tuple[datetime, datetime]] = field(default_factory=list)
    wasted: bool = False


def overlap(start: datetime, end: datetime, first: datetime, last: datetime) -> Decimal:
    span = min(end, last) - max(start, first)
    return max(Decimal(span // timedelta(microseconds=1)) / 10**6, Decimal(0))


def decayed(rows: Iterable[Row], half_life: timedelta, now: datetime) -> float:
    """The weighted GPU-seconds of what was held before `now`: one counts 2^(-age / half-life)."""
    rate = half_life.total_seconds() / log(2)
    total = 0.0
    for row in rows:
        end = min(row.end, now)
        if end > row.start:
            total += rate * (exp2(-((now - end) / half_life)) - exp2(-((now - row.start) / half_life)))
    return total


class Ledger:
    """A random ledger in the database, and the same in memory."""

    def __init__(self, seed: Any, number: int) -> None:
        self.seed = seed
        self.random = random.Random(number)
        self.rows: list[Row] = []
        self.users: dict[str, int] = {}
        self.count = 0

    async def fill(self) -> None:
        """Two types of cards, three users, and on each card one thing after another."""
        for name in ("ada", "bob", "eve"):
            self.users[name] = await self.seed.user(name)
        for number, gpu_type in enumerate(TYPES):
            for card in await self.seed.node(f"node-{number}", cards=2, gpu_type=gpu_type):
                at = self.seed.now - timedelta(hours=60)
                while at < self.seed.now + timedelta(hours=20):
                    at = await self.something(card, gpu_type, at + self.length(0, 6))

    def length(self, least: float, most: float) -> timedelta:
        return timedelta(microseconds=self.random.randint(int(least * 3.6e9), int(most * 3.6e9)) + 1)

    async def something(self, card: int, gpu_type: str, start: datetime) -> datetime:
        end = start + self.length(0.5, 9)
        user, project = self.random.choice(list(self.users)), self.random.choice(PROJECTS)
        row = Row(user, project, gpu_type, start, end)
        if self.random.random() < 0.5:
            await self.job(card, row)
        else:
            await self.booking(card, row)
        self.rows.append(row)
        return end

    def id(self, kind: str) -> str:
        self.count += 1
        return f"{kind}-{self.count}"

    async def job(self, card: int, row: Row) -> None:
        """Over, running, starting, or with a first attempt that never ran, or that ran and is retried."""
        how = self.random.choice(["ran", "never", "requeued", "retried"]) if row.end <= self.seed.now else "runs"
        job = self.id("job")
        began = row.start + (row.end - row.start) * self.random.random()
        ran = how in ("ran", "runs")
        before = began if how == "retried" else None
        await self.seed.job(
            job,
            self.users[row.user],
            {"ran": "succeeded", "never": "failed", "requeued": "queued", "retried": "queued", "runs": "running"}[how],
            project=row.project,
            attempt=1,
            started_at=began if ran else None,
            ends_at=row.end if how == "runs" else None,
            finished_at=row.end if how in ("ran", "never") else None,
            **(_RETRIED if before else {}),
        )
        await self.allocate(job, card, row.start, row.end, over=how != "runs", ran_from=before)
        row.ran = [(began, row.end)] if ran or before else []
        row.wasted = not row.ran

    async def booking(self, card: int, row: Row) -> None:
        """With jobs in it or without, used by a stranger's pod or not at all."""
        over = row.end <= self.seed.now
        booking = self.id("bkg")
        used = self.random.random() < 0.4
        await self.seed.job(
            booking,
            self.users[row.user],
            "ended" if over else "active",
            kind="booking",
            project=row.project,
            finished_at=row.end if over else None,
        )
        await self.seed.run(
            "INSERT INTO bookings (id, starts_at, ends_at, used_at) VALUES (:id, date_trunc('minute', now()), "
            "date_trunc('minute', now()) + interval '1 hour', :used)",
            id=booking, used=row.start if used else None,
        )  # fmt: skip
        await self.allocate(booking, card, row.start, row.end, over=over, held=False)
        at = row.start
        for _ in range(self.random.randint(0, 2)):
            begin = at + (row.end - at) * self.random.random() * 0.5
            end = begin + (row.end - begin) * self.random.random()
            if end <= begin:
                break
            job = self.id("job")
            began = begin + (end - begin) * self.random.random()
            runs = end > self.seed.now
            before = began if not runs and self.random.random() < 0.3 else None
            await self.seed.job(
                job,
                self.users[row.user],
                "running" if runs else "queued" if before else "succeeded",
                attempt=1,
                booking_id=booking,
                # It is the booking's project, and must not be counted beside it.
                project=row.project,
                started_at=None if before else began,
                ends_at=None if before else end,
                finished_at=None if runs or before else end,
                **(_RETRIED if before else {}),
            )
            await self.allocate(job, card, begin, end, over=not runs, booking=booking, ran_from=before)
            row.ran.append((began, end))
            at = end
        row.wasted = over and not used and not row.ran

    async def allocate(
        self,
        reservation: str,
        card: int,
        start: datetime,
        end: datetime,
        *,
        over: bool,
        held: bool = False,
        booking: str | None = None,
        ran_from: datetime | None = None,
    ) -> None:
        await self.seed.run(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at, "
            "booking_id, ran_from) VALUES (:job, 1, :gpu, 0, tstzrange(:start, :end), :held, :start, :over, :booking, "
            ":ran_from)",
            job=reservation, gpu=card, start=start, end=end, held=held, over=end if over else None, booking=booking,
            ran_from=ran_from,
        )  # fmt: skip

    def expected(self, by: UsageBy, first: datetime, last: datetime, user: str | None) -> dict[str | None, GpuTime]:
        found: dict[str | None, GpuTime] = defaultdict(GpuTime)
        for row in self.rows:
            held = overlap(row.start, row.end, first, last)
            if held and user in (None, row.user):
                used = sum((overlap(*ran, max(row.start, first), min(row.end, last)) for ran in row.ran), Decimal(0))
                found[getattr(row, by.value)] += GpuTime(held, used, held - used if row.wasted else Decimal(0))
        return dict(found)


@pytest.mark.parametrize("number", range(12))
async def test_reports_are_the_oracles_and_sum_up_to_the_ledger(seed: Any, engine: AsyncEngine, number: int) -> None:
    ledger = Ledger(seed, number)
    await ledger.fill()
    choose = random.Random(number)
    ranges = [(seed.now - timedelta(days=9), seed.now + timedelta(days=9))]
    for _ in range(4):
        first = seed.now - ledger.length(0, 70)
        ranges.append((first, first + ledger.length(0, 80)))
    for first, last in ranges:
        end = min(last, seed.now)
        for by in UsageBy:
            user = choose.choice([None, "ada", "bob"])
            async with engine.begin() as connection:
                report = await Usage(connection).report(
                    by, first, last, None if user is None else ledger.users[user], seed.now
                )
            expected = ledger.expected(by, first, end, user)
            assert {line.key: line.time for line in report.lines} == expected
            keys = [line.key for line in report.lines]
            assert keys == sorted(keys, key=lambda key: (key is None, key or ""))
            if user is None:
                assert report.total.held == await in_ledger(seed, first, end)
            assert report.total.idle == report.total.held - report.total.used >= report.total.wasted


@pytest.mark.parametrize("number", range(4))
async def test_series_are_the_oracles_step_by_step(seed: Any, engine: AsyncEngine, number: int) -> None:
    ledger = Ledger(seed, number)
    await ledger.fill()
    first = seed.now - timedelta(hours=50)
    last, step = seed.now + timedelta(hours=9, minutes=1), timedelta(hours=7)
    steps = steps_of(first, last, step)
    assert [end for _, end in steps[:-1]] == [start for start, _ in steps[1:]]
    for by in UsageBy:
        async with engine.begin() as connection:
            series = await Usage(connection).series(by, first, last, step, None, seed.now)
        found = dict(series.lines)
        for number_of_step, (start, end) in enumerate(steps):
            expected = ledger.expected(by, start, min(end, seed.now), None) if start < seed.now else {}
            shown = {key: times[number_of_step] for key, times in found.items()}
            assert {key: time for key, time in shown.items() if time != GpuTime()} == expected


async def in_ledger(seed: Any, first: datetime, last: datetime) -> Decimal:
    """What the ledger says by itself."""
    [row] = await seed.rows(
        "SELECT coalesce(sum(extract(epoch FROM upper(x.r) - lower(x.r))), 0) AS s FROM (SELECT during * "
        "tstzrange(:first, :last) AS r FROM allocations WHERE booking_id IS NULL AND NOT planned) AS x "
        "WHERE NOT isempty(x.r)",
        first=first, last=last,
    )  # fmt: skip
    return Decimal(str(row["s"]))


async def test_an_attempt_that_never_ran_is_wasted_and_the_one_that_did_is_used(seed: Any, engine: AsyncEngine) -> None:
    user = await seed.user()
    [first, second] = await seed.node(cards=2)
    half = seed.hour / 2
    await seed.job("job-a", user, "running", attempt=2, started_at=seed.now - half, ends_at=seed.now)
    for attempt, card, start, end in ((1, first, 2, 0.75), (2, second, 1, 0)):
        await seed.run(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at) "
            "VALUES ('job-a', :attempt, :gpu, 0, tstzrange(:start, :end), :held, :start, :over)",
            attempt=attempt, gpu=card, start=seed.now - start * seed.hour, end=seed.now - end * seed.hour,
            held=attempt == 2, over=seed.now if attempt == 1 else None,
        )  # fmt: skip
    # However late the clock of a node was: what a first attempt held was not used by the second.
    await seed.run("UPDATE reservations SET started_at = :at", at=seed.now - seed.hour)
    async with engine.begin() as connection:
        report = await Usage(connection).report(UsageBy.USER, seed.now - 9 * seed.hour, seed.now, None, seed.now)
    assert report.total == GpuTime(Decimal(8100), Decimal(3600), Decimal(4500))


async def test_slots_and_maintenance_are_nobodys_usage(seed: Any, engine: AsyncEngine) -> None:
    user = await seed.user()
    cards = await seed.node(cards=2)
    await seed.job("job-a", user, "queued")
    await seed.run(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, planned, created_at) "
        "VALUES ('job-a', 1, :gpu, 0, tstzrange(:start, :end), false, true, :start)",
        gpu=cards[0], start=seed.now - seed.hour, end=seed.now,
    )  # fmt: skip
    await seed.job("mnt-a", user, "active", kind="maintenance")
    await seed.allocate("mnt-a", cards[1], seed.now - seed.hour, seed.now, held=False)
    async with engine.begin() as connection:
        usage = Usage(connection)
        assert (await usage.report(UsageBy.USER, seed.now - seed.hour, seed.now, None, seed.now)).lines == []
        await usage.update_shares(timedelta(days=7), seed.now)
        assert await usage.shares() == {}


async def test_a_time_that_is_not_past_has_no_usage(seed: Any, engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        report = await Usage(connection).report(
            UsageBy.USER, seed.now, seed.now + seed.hour, None, seed.now - seed.hour
        )
    assert report.lines == ()
    assert report.total == GpuTime()


@pytest.mark.parametrize("number", range(6))
async def test_shares_are_the_same_however_often_they_are_brought_up(
    seed: Any, engine: AsyncEngine, number: int
) -> None:
    ledger = Ledger(seed, number)
    await ledger.fill()
    half_life = timedelta(hours=9)
    moments = sorted(seed.now - ledger.length(0, 50) for _ in range(3))
    for now in [*moments, seed.now]:
        # Closed ranges are what the ledger has by the time of the look; the future is as it was planned.
        async with engine.begin() as connection:
            usage = Usage(connection)
            await usage.update_shares(half_life, now)
            found = await usage.shares()
        expected = {
            user_id: decayed([row for row in ledger.rows if row.user == name], half_life, now)
            for name, user_id in ledger.users.items()
        }
        assert found == pytest.approx({user: value for user, value in expected.items() if value}, rel=1e-6, abs=1e-3)
    async with engine.begin() as connection:
        usage = Usage(connection)
        before = await usage.shares()
        await usage.update_shares(half_life, seed.now - seed.hour)
        assert await usage.shares() == before
        # Another half-life: all is counted anew.
        await usage.update_shares(2 * half_life, seed.now)
        again = await usage.shares()
    name, user_id = next(iter(ledger.users.items()))
    mine = [row for row in ledger.rows if row.user == name]
    assert again[user_id] == pytest.approx(decayed(mine, 2 * half_life, seed.now), rel=1e-6)
