"""Usage where pods of others run under bookings: minute by minute against an oracle."""

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.policy.usage import Usage
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import GpuTime, steps_of

MINUTE = timedelta(minutes=1)
CARDS = 3

Minutes = tuple[int, int]


@dataclass
class Booked:
    """A booking of so many cards for some minutes; on each card what jobs of it ran when; pods with their GPUs."""

    user: str
    gpus: int
    minutes: Minutes
    jobs: list[list[Minutes]] = field(default_factory=list)
    pods: list[tuple[Minutes, int]] = field(default_factory=list)

    def used(self, first: int, last: int) -> int:
        """GPU-minutes in which something ran on its cards."""
        begin, end = self.minutes
        return sum(
            min(
                self.gpus,
                sum(a <= at < b for card in self.jobs for a, b in card)
                + sum(gpus for (a, b), gpus in self.pods if a <= at < b),
            )
            for at in range(max(begin, first), min(end, last))
        )

    def held(self, first: int, last: int) -> int:
        """GPU-minutes that were its."""
        return max(0, min(self.minutes[1], last) - max(self.minutes[0], first)) * self.gpus


class Lab:
    """Bookings one after the other, in the database and in memory; minute 0 is `seed.now`."""

    def __init__(self, seed: Any, number: int) -> None:
        self.seed = seed
        self.random = random.Random(number)
        self.bookings: list[Booked] = []
        self.count = 0

    def span(self, within: Minutes) -> Minutes:
        first = self.random.randint(within[0], within[1] - 1)
        return first, self.random.randint(first + 1, within[1])

    async def fill(self) -> None:
        cards = {kind: await self.seed.node(kind, cards=CARDS, gpu_type=kind) for kind in ("h100", "t4")}
        users = {name: await self.seed.user(name) for name in ("ada", "bob")}
        for here in cards.values():
            at = 0
            for _ in range(5):
                begin = at + self.random.randint(0, 20)
                at = begin + self.random.randint(5, 60)
                user = self.random.choice(list(users))
                booked = Booked(user, self.random.randint(1, CARDS), (begin, at))
                await self.book(booked, users[user], here)
                self.bookings.append(booked)

    async def book(self, booked: Booked, user_id: int, cards: list[int]) -> None:
        self.count += 1
        booking = f"bkg-{self.count}"
        start, end = (self.seed.now + minute * MINUTE for minute in booked.minutes)
        await self.seed.job(booking, user_id, "ended", kind="booking", finished_at=end)
        await self.seed.run(
            "INSERT INTO bookings (id, starts_at, ends_at) VALUES (:id, :start, :end)", id=booking, start=start, end=end
        )
        for card in cards[: booked.gpus]:
            await self.allocate(booking, card, booked.minutes)
            booked.jobs.append([])
            at = booked.minutes[0]
            while at < booked.minutes[1] and self.random.random() < 0.5:
                ran = self.span((at, booked.minutes[1]))
                job = f"job-{self.count}x{card}x{at}"
                begin, over = (self.seed.now + minute * MINUTE for minute in ran)
                await self.seed.job(
                    job, user_id, "succeeded", attempt=1, booking_id=booking, started_at=begin, finished_at=over
                )
                await self.allocate(job, card, ran, booking)
                booked.jobs[-1].append(ran)
                at = ran[1]
        for number in range(self.random.randint(0, 3)):
            # It may outlast its booking: what watches the cluster knows no better, or its end is not known.
            minutes = self.span((booked.minutes[0], booked.minutes[1] + 10))
            gpus = self.random.randint(1, CARDS)
            known = self.random.random() < 0.7
            await self.seed.run(
                "INSERT INTO admissions (booking_id, pod_uid, namespace, name, gpus, admitted_at, ended_at, "
                "recorded_at) VALUES (:id, :uid, 'lab', 'pod', :gpus, :begin, :end, :begin)",
                id=booking,
                uid=f"{booking}-{number}",
                gpus=gpus,
                begin=self.seed.now + minutes[0] * MINUTE,
                end=self.seed.now + minutes[1] * MINUTE if known else None,
            )
            booked.pods.append((minutes if known else (minutes[0], 10**6), gpus))

    async def allocate(self, reservation: str, card: int, minutes: Minutes, booking: str | None = None) -> None:
        start, end = (self.seed.now + minute * MINUTE for minute in minutes)
        await self.seed.run(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at, "
            "booking_id) VALUES (:id, 1, :card, 0, tstzrange(:start, :end), false, :start, :end, :booking)",
            id=reservation, card=card, start=start, end=end, booking=booking,
        )  # fmt: skip


@pytest.mark.parametrize("number", range(6))
async def test_reports_are_the_oracles(seed: Any, engine: AsyncEngine, number: int) -> None:
    lab = Lab(seed, number)
    await lab.fill()
    last = max(booking.minutes[1] for booking in lab.bookings) + 20
    assert any(booking.pods for booking in lab.bookings)
    for first, end in [(0, last), *(lab.span((-5, last)) for _ in range(5))]:
        async with engine.begin() as connection:
            report = await Usage(connection).report(
                UsageBy.USER, seed.now + first * MINUTE, seed.now + end * MINUTE, None, seed.now + last * MINUTE
            )
        expected: dict[str, GpuTime] = {}
        for booking in lab.bookings:
            held, used = booking.held(first, end) * 60, booking.used(first, end) * 60
            ran = booking.pods or any(booking.jobs)
            if held:
                time = GpuTime(held, used, 0 if ran else held - used)  # type: ignore[arg-type]
                expected[booking.user] = expected.get(booking.user, GpuTime()) + time
        assert {line.key: line.time for line in report.lines} == expected
    first_at, last_at, step = seed.now, seed.now + last * MINUTE, 10 * MINUTE
    async with engine.begin() as connection:
        usage = Usage(connection)
        series = await usage.series(UsageBy.USER, first_at, last_at, step, None, last_at)
        for number_of_step, (start, until) in enumerate(steps_of(first_at, last_at, step)):
            report = await usage.report(UsageBy.USER, start, until, None, last_at)
            shown = {key: times[number_of_step] for key, times in series.lines}
            assert {key: time for key, time in shown.items() if time != GpuTime()} == {
                line.key: line.time for line in report.lines if line.time != GpuTime()
            }
