"""Sums of usage change no report: it is the same to the microsecond whatever is summed, corrected and summed again."""

import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.postgres.policy.usage import Usage
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import UsageReport, UsageSeries
from tests.integration.reservation_core.adapters.postgres.policy.test_usage import Ledger


async def asked(connection: AsyncConnection, ledger: Ledger, number: int) -> list[UsageReport | UsageSeries]:
    """Many questions: whole and by steps, aligned with UTC hours, with half hours and with nothing."""
    choose = random.Random(number)
    now = ledger.seed.now
    usage = Usage(connection)
    found: list[UsageReport | UsageSeries] = []
    spans = [(now - timedelta(days=9), now), (now - timedelta(hours=50), now - timedelta(hours=1))]
    spans.append((now - timedelta(seconds=choose.uniform(1e5, 2.5e5)), now - timedelta(seconds=choose.uniform(0, 7e4))))
    # Days that begin at another hour than midnight's: of these sums are taken away, too.
    on_the_hour = now.replace(hour=choose.choice([3, 5, 12, 19]), minute=0, second=0, microsecond=0)
    spans.append((on_the_hour - timedelta(days=7), on_the_hour))
    for start, end in spans:
        for by in UsageBy:
            user = choose.choice([None, *ledger.users.values()])
            found.append(await usage.report(by, start, end, user, now))
            step = choose.choice([timedelta(hours=24), timedelta(minutes=450), timedelta(hours=7, seconds=1)])
            found.append(await usage.series(by, start, end, step, user, now))
    return found


async def reports(engine: AsyncEngine, ledger: Ledger, number: int) -> list[UsageReport | UsageSeries]:
    async with engine.begin() as connection:
        return await asked(connection, ledger, number)


async def unsummed(engine: AsyncEngine, ledger: Ledger, number: int) -> list[UsageReport | UsageSeries]:
    """The same with nothing summed: the ledger alone answers."""
    async with engine.connect() as connection, connection.begin() as taken_back:
        await connection.execute(text("DELETE FROM usage_sums"))
        await connection.execute(
            text(
                "INSERT INTO usage_pending SELECT DISTINCT reservation_id FROM allocations "
                "WHERE released_at IS NOT NULL AND booking_id IS NULL ON CONFLICT DO NOTHING"
            )
        )
        found = await asked(connection, ledger, number)
        await taken_back.rollback()
    return found


async def sum_up(engine: AsyncEngine, ledger: Ledger, limit: int, hours: int = 1_000_000) -> int:
    async with engine.begin() as connection:
        return await Usage(connection).sum_up_usage(ledger.seed.now, limit, hours)


async def correct_started(seed: Any, chance: random.Random) -> None:
    """A node's clock was wrong: jobs began at another time, some of them within bookings, or never."""
    await seed.run(
        "UPDATE reservations SET started_at = CASE WHEN :never THEN NULL ELSE started_at + :by END "
        "WHERE finished_at IS NOT NULL AND started_at IS NOT NULL AND hashtext(id || :salt) % 3 = 0",
        never=chance.random() < 0.3, by=timedelta(seconds=chance.randint(-4000, 4000)), salt=str(chance.random()),
    )  # fmt: skip


async def use_bookings(seed: Any, chance: random.Random) -> None:
    """It is noticed late that bookings were used."""
    await seed.run(
        "UPDATE bookings SET used_at = CASE WHEN used_at IS NULL THEN CAST(:at AS timestamptz) END "
        "WHERE hashtext(id || :salt) % 2 = 0",
        at=seed.now, salt=str(chance.random()),
    )  # fmt: skip


async def report_pods(seed: Any, chance: random.Random) -> None:
    """Pods of others are reported late, some without an end."""
    await seed.run(
        "INSERT INTO admissions (booking_id, pod_uid, namespace, name, gpus, admitted_at, ended_at, recorded_at) "
        "SELECT b.id, b.id || :salt, 'team', 'pod', 1, lower(a.during) + interval '9 minutes', "
        "CASE WHEN :ended THEN lower(a.during) + interval '77 minutes' END, :now "
        "FROM bookings b JOIN allocations a ON a.reservation_id = b.id WHERE hashtext(b.id || :salt) % 2 = 0",
        salt=str(chance.random()), ended=chance.random() < 0.5, now=seed.now,
    )  # fmt: skip


async def end_pods(seed: Any, chance: random.Random) -> None:
    """Pods that were thought to run had ended."""
    await seed.run(
        "UPDATE admissions SET ended_at = admitted_at + :lasted WHERE ended_at IS NULL",
        lasted=timedelta(seconds=chance.randint(1, 9000)),
    )


async def reopen_jobs(seed: Any, _: random.Random) -> None:
    """Pods of a job that was over were still there: it has cards again, and gives them back once more."""
    await seed.run(
        "UPDATE reservations SET status = 'running', finished_at = NULL, ends_at = :end, started_at = "
        "coalesce(started_at, :now) WHERE id IN (SELECT id FROM reservations WHERE status = 'succeeded' "
        "AND booking_id IS NULL ORDER BY id LIMIT 1)",
        now=seed.now, end=seed.now + seed.hour,
    )  # fmt: skip


async def end_jobs(seed: Any, _: random.Random) -> None:
    """Running jobs end before their time; their cards go back."""
    await seed.run(
        "UPDATE reservations SET status = 'succeeded', finished_at = :now WHERE status = 'running'", now=seed.now
    )
    await seed.run(
        "UPDATE allocations a SET released_at = :now, held = false, during = tstzrange(lower(during), "
        "greatest(lower(during) + interval '1 microsecond', least(upper(during), CAST(:now AS timestamptz)))) "
        "FROM reservations r WHERE r.id = a.reservation_id AND r.finished_at IS NOT NULL AND a.released_at IS NULL",
        now=seed.now,
    )


CORRECTIONS: list[Callable[[Any, random.Random], Awaitable[None]]] = [
    correct_started, use_bookings, report_pods, end_pods, reopen_jobs, end_jobs
]  # fmt: skip


@pytest.mark.parametrize("number", range(6))
async def test_reports_from_sums_are_those_of_the_ledger(seed: Any, engine: AsyncEngine, number: int) -> None:
    ledger = Ledger(seed, number)
    await ledger.fill()
    chance = random.Random(number)
    before = await reports(engine, ledger, number)
    assert await sum_up(engine, ledger, 1000) > 5
    assert await seed.rows("SELECT 1 FROM usage_sums LIMIT 1")
    assert await reports(engine, ledger, number) == before
    for _ in range(4):
        for correct in chance.sample(CORRECTIONS, 2):
            await correct(seed, chance)
        assert await reports(engine, ledger, number) == await unsummed(engine, ledger, number)
        await sum_up(engine, ledger, chance.choice([3, 1000]))
        assert await reports(engine, ledger, number) == await unsummed(engine, ledger, number)


async def test_what_is_summed_at_once_is_bounded_by_its_hours(seed: Any, engine: AsyncEngine) -> None:
    ledger = Ledger(seed, 1)
    await ledger.fill()
    pending = "SELECT count(*) AS n FROM usage_pending"
    waiting = (await seed.rows(pending))[0]["n"]
    assert await sum_up(engine, ledger, 1000, hours=1) == 1  # longer than that alone, and it must not wait for ever
    some = await sum_up(engine, ledger, 1000, hours=10)
    assert 1 <= some < 10
    while await sum_up(engine, ledger, 1000, hours=10):
        pass
    left = (await seed.rows(pending))[0]["n"]
    assert left < waiting - some
    assert await reports(engine, ledger, 1) == await unsummed(engine, ledger, 1)
    assert await sum_up(engine, ledger, 1000) == 0
