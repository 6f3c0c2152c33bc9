"""What a calendar shows is found card by card: it is what each booking by itself, and each open row, comes to."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.bookings.bookings import Bookings
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.ports.bookings.bookings import EntryMerging, MergedEntries

# The same, asked of every booking and every row one by one.
ONE_BY_ONE = """
WITH had AS (
    SELECT b.id, false AS planned, b.starts_at, b.ends_at, b.series_id, array_agg(a.gpu_id ORDER BY a.gpu_id) AS gpu_ids
    FROM bookings b JOIN allocations a ON a.reservation_id = b.id
    WHERE a.gpu_id = ANY(CAST(:gpu_ids AS bigint[])) AND b.status IN ('offered', 'confirmed', 'active', 'ended')
      AND b.starts_at < :end AND b.ends_at > :start
    GROUP BY b.id
    UNION ALL
    SELECT a.reservation_id, bool_or(a.planned), min(lower(a.during)), max(upper(a.during)), NULL,
           array_agg(a.gpu_id ORDER BY a.gpu_id)
    FROM allocations a JOIN reservations r ON r.id = a.reservation_id
    WHERE a.gpu_id = ANY(CAST(:gpu_ids AS bigint[])) AND a.released_at IS NULL AND a.booking_id IS NULL
      AND lower(a.during) < :end AND upper(a.during) > :start AND r.kind <> 'booking'
    GROUP BY a.reservation_id
)
SELECT r.id, r.kind, r.status, h.planned, r.user_id, u.name AS user_name, r.name, r.gpus, r.nodes, h.starts_at,
       h.ends_at, h.series_id, h.gpu_ids, r.ends_at AS own_end
FROM had h JOIN reservations r ON r.id = h.id JOIN users u ON u.id = r.user_id
WHERE CAST(:only_of AS bigint) IS NULL OR r.user_id = CAST(:only_of AS bigint) OR r.kind = 'maintenance'
ORDER BY h.starts_at, r.id
"""
MINUTE = timedelta(minutes=1)
MERGED_FIELDS = 8
"""The first columns are about merged entries."""
UNMERGED = {"merged_above": None, "places": [], "steps": [], "step_s": 0.0, "viewer": None, "named": 0}


class Calendar:
    """Cards on which one thing follows another; bookings have two cards each, whole, begun late or ended early."""

    def __init__(self, seed: Any, number: int) -> None:
        self.seed = seed
        self.random = random.Random(number)
        self.users: list[int] = []
        self.cards: list[int] = []
        self.count = 0

    async def fill(self) -> None:
        self.users = [await self.seed.user(name) for name in ("ada", "bob")]
        self.cards = await self.seed.node(cards=8)
        for pair in zip(self.cards[::2], self.cards[1::2], strict=True):
            at = self.seed.now - timedelta(hours=40)
            while at < self.seed.now + timedelta(hours=40):
                at += self.random.randint(0, 300) * MINUTE
                at = await self.something(pair, at)

    async def something(self, pair: tuple[int, int], start: datetime) -> datetime:
        self.count += 1
        end = start + self.random.randint(10, 600) * MINUTE
        if self.random.random() < 0.6:
            await self.booking(f"bkg-{self.count}", pair, start, end)
        else:
            await self.other(pair, start, end)
        return end

    async def booking(self, booking: str, pair: tuple[int, int], start: datetime, end: datetime) -> None:
        now = self.seed.now
        early = start < now and self.random.random() < 0.3
        over = end <= now or early
        status = "confirmed" if start > now else "active"
        if over:
            status = self.random.choice(["ended", "ended", "released", "cancelled"])
        user = self.random.choice(self.users)
        finished = min(end, now) if over else None
        await self.seed.job(booking, user, status, kind="booking", finished_at=finished)
        await self.seed.run(
            "INSERT INTO bookings (id, starts_at, ends_at) VALUES (:id, :start, :end)", id=booking, start=start, end=end
        )
        begins = start + (end - start) * 0.1 if self.random.random() < 0.2 else start
        ends = begins + (min(end, now) - begins) * self.random.random() if early and begins < now else end
        if status == "cancelled" and self.random.random() < 0.5:
            return
        for card in pair:
            await self.allocate(booking, card, begins, max(ends, begins + MINUTE), over=over, held=False)

    async def other(self, pair: tuple[int, int], start: datetime, end: datetime) -> None:
        """A job that is over, runs past its end or is promised its cards; or maintenance."""
        now, user = self.seed.now, self.random.choice(self.users)
        if start > now and self.random.random() < 0.4:
            await self.seed.job(f"mnt-{self.count}", user, "confirmed", kind="maintenance")
            await self.allocate(f"mnt-{self.count}", pair[0], start, end, over=False, held=False)
            return
        over = end <= now
        status = "succeeded" if over else "running" if start <= now else "queued"
        times: dict[str, Any] = {"finished_at": end if over else None}
        if status == "running":
            times |= {"attempt": 1, "started_at": start, "ends_at": end - MINUTE / 6}
        await self.seed.job(f"job-{self.count}", user, status, **times)
        for card in pair[: self.random.randint(1, 2)]:
            await self.allocate(
                f"job-{self.count}", card, start, end, over=over, held=status == "running", planned=status == "queued"
            )

    async def allocate(
        self, reservation: str, card: int, start: datetime, end: datetime, *, over: bool, held: bool,
        planned: bool = False,
    ) -> None:  # fmt: skip
        await self.seed.run(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, planned, created_at, "
            "released_at) VALUES (:id, 1, :gpu, 0, tstzrange(:start, :end), :held, :planned, :start, :over)",
            id=reservation, gpu=card, start=start, end=end, held=held, planned=planned, over=end if over else None,
        )  # fmt: skip


@pytest.mark.parametrize("number", range(3))
async def test_a_calendar_shows_what_each_booking_and_each_open_row_comes_to(
    engine: AsyncEngine, seed: Any, number: int
) -> None:
    calendar = Calendar(seed, number)
    await calendar.fill()
    choose = calendar.random
    shown = 0
    async with engine.connect() as connection:
        for _ in range(60):
            start = seed.now + choose.randint(-2700, 2700) * MINUTE
            asked = {
                **UNMERGED,
                "start": start,
                "end": start + choose.randint(1, 1500) * MINUTE,
                "gpu_ids": choose.sample(calendar.cards, choose.randint(1, 8)),
                "only_of": choose.choice([None, *calendar.users]),
                "limit": choose.choice([None, 1, 10]),
            }
            found = [
                tuple(row)[MERGED_FIELDS:] for row in await connection.execute(statement("calendar_entries"), asked)
            ]
            wanted = (await connection.execute(text(ONE_BY_ONE), asked)).all()
            assert found == wanted[: asked["limit"]], asked
            shown += len(found)
    assert shown > 50


@pytest.mark.parametrize("number", range(3))
async def test_merged_entries_are_those_that_begin_in_a_step_of_their_row(
    engine: AsyncEngine, seed: Any, number: int
) -> None:
    calendar = Calendar(seed, 10 + number)
    await calendar.fill()
    choose = calendar.random
    shown = 0
    async with engine.connect() as connection:
        for _ in range(60):
            start = seed.now + choose.randint(-2700, 2700) * MINUTE
            end = start + choose.randint(1, 3000) * MINUTE
            cards = choose.sample(calendar.cards, choose.randint(1, 8))
            only_of, viewer = choose.choice([None, *calendar.users]), choose.choice(calendar.users)
            merging = EntryMerging(
                above=choose.choice([0, 0, 5]),
                places=[choose.randrange(3) for _ in cards],
                steps=[start, *sorted(start + choose.randint(1, 3000) * MINUTE for _ in range(choose.randint(0, 6)))],
                step_length=choose.randint(10, 600) * MINUTE,
                viewer=viewer,
                named=choose.randint(1, 3),
            )
            asked = {"start": start, "end": end, "gpu_ids": cards, "only_of": only_of}
            rows = (await connection.execute(text(ONE_BY_ONE), asked)).all()
            found = await Bookings(connection).entries(start, end, cards, only_of=only_of, merging=merging)
            if len(rows) <= merging.above:
                assert [entry.id for entry in found.single] == [row.id for row in rows]
                assert not found.merged
                continue
            assert not found.single
            assert [_told(merged) for merged in found.merged] == _merged_by_hand(rows, cards, merging)
            shown += len(found.merged)
    assert shown > 50


def _told(merged: MergedEntries) -> tuple[Any, ...]:
    first = [entry.id for entry in merged.first]
    kind, span = merged.kind.value, merged.span
    return merged.place, merged.mine, merged.long, kind, merged.count, span.start, span.end, first


def _merged_by_hand(rows: Sequence[Any], cards: Sequence[int], merging: EntryMerging) -> list[tuple[Any, ...]]:
    """Entry by entry; `rows` are in order of their starts."""
    place_of = dict(zip(cards, merging.places, strict=True))
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        step = max(1, sum(begin <= row.starts_at for begin in merging.steps))
        mine = row.user_id == merging.viewer and row.kind != "maintenance"
        long = row.ends_at - row.starts_at > merging.step_length
        for place in {place_of[card] for card in row.gpu_ids}:
            groups.setdefault((step, place, mine, long, row.kind), []).append(row)
    return [
        (
            place,
            mine,
            long,
            kind,
            len(here),
            here[0].starts_at,
            max(row.ends_at for row in here),
            [row.id for row in here[: merging.named]],
        )
        for (_, place, mine, long, kind), here in sorted(groups.items(), key=lambda group: group[0])
    ]
