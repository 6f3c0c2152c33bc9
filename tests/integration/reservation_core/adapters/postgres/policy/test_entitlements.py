"""How many cards the calendar leaves free, and until when: random ledgers against an oracle."""

import random
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.policy.entitlements import Entitlements

MINUTE = timedelta(minutes=1)
TYPES = {"h100": 4, "t4": 2}


@pytest.mark.parametrize("number", range(6))
async def test_what_is_free_and_until_when(seed: Any, engine: AsyncEngine, number: int) -> None:
    """Somebody who takes `gpus` of the cards that are free now, those with the most time, has them all until then."""
    choose = random.Random(number)
    async with engine.begin() as connection:
        now = (await connection.execute(text("SELECT date_trunc('minute', clock_timestamp())"))).scalar_one()
    user = await seed.user()
    free: dict[str, list[int | None]] = {}
    able = dict(TYPES)
    for kind, cards in TYPES.items():
        free[kind] = []
        for card in await seed.node(kind, cards=cards, gpu_type=kind):
            if choose.random() < 0.2:
                await seed.run("UPDATE gpus SET condition = 'lost' WHERE id = :id", id=card)
                able[kind] -= 1
                continue
            starts: list[int] = []
            busy = False
            at = choose.choice([-90, -30, 5, 60])
            for _ in range(choose.randint(0, 3)):
                length = choose.randint(15, 200)
                # A row that is over and holds nothing any more, one that holds on, or one that is ahead.
                held = at + length <= 0 and choose.random() < 0.5
                job = f"job-{kind}x{card}x{at + 100}"
                await seed.job(job, user, "running", attempt=1, started_at=now, ends_at=now)
                await seed.allocate(job, card, now + at * MINUTE, now + (at + length) * MINUTE, held=held)
                busy = busy or held or at <= 0 < at + length
                starts += [at] if at > 0 else []
                at += length + choose.randint(10, 60)
                if held:
                    break
            if not busy:
                free[kind].append(min(starts, default=None))
    for gpus in (1, 2, 3):
        async with engine.begin() as connection:
            found = await Entitlements(connection).free_of_types(None, gpus)
        expected = []
        for kind in sorted(TYPES):
            if able[kind]:
                # The longest first.
                times = sorted(free[kind], key=lambda at: -(10**9 if at is None else at))
                until = times[gpus - 1] if gpus <= len(times) else None
                expected.append((kind, able[kind], len(times), None if until is None else now + until * MINUTE))
        assert [
            (availability.gpu_type, availability.cards, availability.free, availability.until) for availability in found
        ] == expected
        async with engine.begin() as connection:
            only = await Entitlements(connection).free_of_types("t4", gpus)
        assert only == [availability for availability in found if availability.gpu_type == "t4"]
