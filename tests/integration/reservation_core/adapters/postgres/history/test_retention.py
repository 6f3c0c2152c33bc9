"""Removing history of random ledgers: nothing young, open or unsummed goes, and no report of usage becomes another."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from benchmarks.waiting.explaining import explain
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.history.retention import Retention
from reservation_core.adapters.postgres.policy.usage import Usage
from reservation_core.domain.history.retention import HistoryReaders, RetentionRules, jobs_older_than, ledger_older_than
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import UsageReport, UsageSeries
from reservation_core.usecases.history.retention import BATCH as PART
from reservation_core.usecases.history.retention import ROWS
from tests.integration.reservation_core.adapters.postgres.policy.test_usage import Ledger
from tests.waiting import eventually

BATCH = 7
# 40,000 jobs that are over, half of them with a closed row of the ledger and all with a promise; 20,000 keys.
HISTORY = """
INSERT INTO users (name, role, created_at) SELECT 'user' || i, 'user', now() FROM generate_series(1, 200) i;
INSERT INTO nodes (name, ready, schedulable, last_seen_at) VALUES ('a', true, true, now());
INSERT INTO gpus (node_id, index, gpu_type, updated_at) SELECT 1, i, 'h100', now() FROM generate_series(0, 999) i;
INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, priority, workload,
                          created_at, changed_at, attempt, started_at, finished_at)
SELECT 'job-' || i, 'job', 1 + i % 200, 'succeeded', 'x', 'x', 1, 1, interval '1 hour', 0, '{}', now(), now(), 1, now(),
       now()
FROM generate_series(1, 40000) i;
INSERT INTO start_promises (reservation_id, promised_start_at, made_at) SELECT id, now(), now() FROM reservations;
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, released_at)
SELECT 'job-' || i, 1, 1 + i % 1000, 0,
       tstzrange(now() + i * interval '1 hour', now() + (i + 1) * interval '1 hour'), false, now(), now()
FROM generate_series(1, 20000) i;
INSERT INTO idempotency_keys (user_id, key, request_hash, created_at)
SELECT 1 + i % 200, 'key-' || i, sha256('x'), now() FROM generate_series(1, 20000) i;
INSERT INTO events (reservation_id, at, actor, kind) SELECT id, now(), 'system', 'started' FROM reservations;
DELETE FROM usage_pending;
DELETE FROM given_back;
ANALYZE
"""
HOUR = timedelta(hours=1)


async def reports(engine: AsyncEngine, ledger: Ledger) -> list[UsageReport | UsageSeries]:
    """Whole and by steps, for everybody and each: by hours, in which usage is summed."""
    now = ledger.seed.now
    found: list[UsageReport | UsageSeries] = []
    async with engine.begin() as connection:
        usage = Usage(connection)
        for start, end in ((now - timedelta(days=9), now), (now - 50 * HOUR, now - HOUR)):
            for by in UsageBy:
                for user in (None, *ledger.users.values()):
                    found.append(await usage.report(by, start, end, user, now))
                    found.append(await usage.series(by, start, end, timedelta(hours=24), user, now))
    return found


async def sum_up(engine: AsyncEngine, ledger: Ledger, limit: int) -> None:
    async with engine.begin() as connection:
        usage = Usage(connection)
        await usage.sum_up_usage(ledger.seed.now, limit, 1_000_000)
        await usage.sum_up_given_back(ledger.seed.now, limit)


async def remove(engine: AsyncEngine, before: datetime, *, rows_alone: bool) -> None:
    """All that can go, part by part; then once more from the oldest."""
    for _ in range(2):
        reservations, rows = None, None
        while True:
            async with engine.begin() as connection:
                retention = Retention(connection)
                if rows_alone:
                    row_part = await retention.remove_allocations(before, rows, BATCH)
                    rows, done = row_part.goes_on_after, not row_part.count and row_part.goes_on_after is None
                else:
                    part = await retention.remove_reservations(before, reservations, BATCH)
                    reservations, done = part.goes_on_after, not part.count and part.goes_on_after is None
            if done:
                break


async def protected(seed: Any, before: datetime) -> set[str]:
    """What must stay, by plain words over whole families: a booking with its jobs, or a job alone."""
    rows = await seed.rows(
        "SELECT r.id, coalesce(r.booking_id, r.id) AS head, "
        "r.finished_at IS NULL OR r.finished_at >= :before AS young, "
        "EXISTS (SELECT FROM allocations a WHERE a.reservation_id = r.id AND a.released_at IS NULL) AS open, "
        "EXISTS (SELECT FROM given_back b JOIN allocations a ON a.id = b.allocation_id WHERE a.reservation_id = r.id) "
        "OR EXISTS (SELECT FROM usage_pending p WHERE p.reservation_id = coalesce(r.booking_id, r.id)) AS unsummed "
        "FROM reservations r",
        before=before,
    )
    heads = {row["head"] for row in rows if row["young"] or row["unsummed"] or row["open"]}
    return {row["id"] for row in rows if row["head"] in heads}


async def ids(seed: Any, table: str = "reservations", column: str = "id") -> set[str]:
    return {row["id"] for row in await seed.rows(f"SELECT {column} AS id FROM {table}")}


@pytest.mark.parametrize("rows_alone", [False, True], ids=["reservations", "rows of the ledger"])
@pytest.mark.parametrize("number", range(8))
async def test_only_what_is_old_and_summed_goes_and_usage_stays(
    seed: Any, engine: AsyncEngine, number: int, rows_alone: bool
) -> None:
    ledger = Ledger(seed, number)
    await ledger.fill()
    choose = random.Random(number)
    # A pod that would not end: its job was over later than its booking.
    await seed.run(
        "UPDATE reservations SET finished_at = finished_at + interval '30 hours' "
        "WHERE booking_id IS NOT NULL AND finished_at IS NOT NULL AND hashtext(id) % 2 = 0"
    )
    await sum_up(engine, ledger, choose.choice([0, 3, 10, 1000]))
    for _ in range(3):
        before = seed.now - HOUR * choose.uniform(-1, 60)
        told = await reports(engine, ledger)
        there, rows = await ids(seed), await ids(seed, "allocations", "CAST(id AS text) || reservation_id")
        stays = await protected(seed, before)
        await remove(engine, before, rows_alone=rows_alone)
        left, left_rows = await ids(seed), await ids(seed, "allocations", "CAST(id AS text) || reservation_id")
        assert left >= stays
        if rows_alone:
            assert left == there
            assert all(any(row.endswith(f"{job}") for job in there - stays) for row in rows - left_rows)
        else:
            # All that need not stay is gone, and with it what belonged to it.
            assert left == stays & there
            assert await ids(seed, "bookings") <= left
        assert await reports(engine, ledger) == told
        await sum_up(engine, ledger, choose.choice([3, 1000]))
    await sum_up(engine, ledger, 1000)
    told = await reports(engine, ledger)
    await remove(engine, seed.now, rows_alone=rows_alone)
    assert await reports(engine, ledger) == told
    over = await seed.rows("SELECT id FROM reservations WHERE finished_at < :now AND booking_id IS NULL", now=seed.now)
    if not rows_alone:
        assert {row["id"] for row in over} <= await protected(seed, seed.now)


@pytest.mark.parametrize("first", ["correction", "removal"])
async def test_usage_that_is_corrected_while_its_rows_go_is_not_lost(
    seed: Any, engine: AsyncEngine, first: str
) -> None:
    """In either order the second waits: rows are never gone from the ledger and from the sums."""
    ledger = Ledger(seed, 1)
    await ledger.fill()
    await sum_up(engine, ledger, 1000)
    told = await reports(engine, ledger)
    job = "(SELECT min(id) FROM reservations WHERE status = 'succeeded' AND booking_id IS NULL)"

    async def correct(connection: AsyncConnection) -> None:
        # Back and forth: the job is as it was, and pending.
        for by in ("-", "+"):
            await connection.execute(
                text(f"UPDATE reservations SET started_at = started_at {by} interval '1 s' WHERE id = {job}")
            )

    async def take_away(connection: AsyncConnection) -> None:
        await Retention(connection).remove_allocations(seed.now, None, 10_000)

    one, other = (correct, take_away) if first == "correction" else (take_away, correct)
    async with engine.connect() as holder, engine.connect() as waiter:
        await one(holder)
        waiting = asyncio.create_task(other(waiter))
        await eventually(lambda: somebody_waits(seed))
        await holder.commit()
        await waiting
        await waiter.commit()
    assert await reports(engine, ledger) == told
    await sum_up(engine, ledger, 1000)
    assert await reports(engine, ledger) == told


async def somebody_waits(seed: Any) -> bool:
    return bool(
        await seed.rows(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
    )


@pytest.mark.parametrize("days", [0.0001, 10, 400, 4000])
@pytest.mark.parametrize(
    "needed",
    [
        HistoryReaders(),
        HistoryReaders(cooldown=timedelta(days=30)),
        HistoryReaders(half_life=timedelta(days=70), counted_until=datetime.fromisoformat("2029-06-01T00:00Z")),
    ],
    ids=["nothing", "a cooldown", "fair shares"],
)
def test_what_is_needed_is_never_old(days: float, needed: HistoryReaders) -> None:
    now = datetime.fromisoformat("2030-01-01T00:00Z")
    keep = timedelta(days=days)
    before = ledger_older_than(now, keep, needed)
    assert before is not None
    assert before <= now - keep
    assert before <= now - timedelta(days=8) - (needed.cooldown or timedelta(0))
    if needed.half_life is not None and needed.counted_until is not None:
        assert before <= min(needed.counted_until, now - 10 * needed.half_life)
    rules = RetentionRules(None, keep, keep, None, None, None)
    assert jobs_older_than(now, rules, needed) == before
    assert jobs_older_than(now, RetentionRules(None, keep, None, None, None, None), needed) is None
    assert ledger_older_than(now, None, needed) is None


async def test_no_part_reads_more_however_long_the_history_is(engine: AsyncEngine) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    some = [f"job-{number}" for number in range(100, 100 + PART)]
    values = {
        "still_needed": {},
        "removable_reservations": {
            "before": later, "after_at": datetime(1970, 1, 1, tzinfo=UTC), "after_id": "", "limit": PART
        },
        "removable_allocations": {"before": later, "after_id": 0, "limit": ROWS},
        "lock_ended_reservations": {"ids": some},
        "remove_promises_of": {"ids": some},
        "unlink_started_jobs": {"ids": some},
        "remove_pod_logs_of": {"ids": some},
        "remove_admissions_of": {"ids": some},
        "remove_windows_of": {"ids": some},
        "remove_bookings_of": {"ids": some},
        "oldest_ended_reservation": {},
        "oldest_allocation": {},
        "oldest_event": {},
        "oldest_pod_log": {},
        "oldest_key": {},
        "event_partition_is_due": {"before": later},
        "remove_keys": {"before": later, "limit": PART},
        "remove_pod_logs": {"before": later, "limit": PART},
        "claim_usage": {"ids": list(range(1, PART))},
        "keep_usage": {"heads": some},
        "remove_allocations": {"ids": list(range(1, PART)), "heads": some},
        "retention_standing": {},
    }  # fmt: skip
    async with engine.begin() as connection:
        for sql in HISTORY.split(";"):
            await connection.exec_driver_sql(sql)
        await connection.execute(statement("begin_retention"))
        for name, asked in values.items():
            found = await explain(connection, name, asked)
            assert found.buffers <= 5000, (name, found.buffers)
            scanned = [node["Relation Name"] for node in found.nodes if node["Node Type"] == "Seq Scan"]
            assert not set(scanned) & {"reservations", "allocations", "idempotency_keys"}, (name, scanned)
        # And what the foreign keys ask: each at most by an index.
        for name in ("remove_allocations_of", "remove_reservations"):
            if name == "remove_reservations":
                for belonging in ("remove_allocations_of", "remove_promises_of"):
                    await connection.execute(statement(belonging), {"ids": some})
            found = await explain(connection, name, {"ids": some})
            assert found.buffers <= 20 * PART, (name, found.buffers)
