"""Samples of GPUs in the database: once each, rolled up, read by key, dropped by day."""

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.gpu_use.gpu_use import GpuUse
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.gpu_use.roll_ups import Level, UsePoint, roll_up
from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample
from reservation_core.domain.gpu_use.spans import Resolution, spans_of
from reservation_core.ports.history.retention import LockTimeoutError
from reservation_core.usecases.gpu_use import keep_use as keeping
from reservation_core.usecases.gpu_use.keep_use import keep_use
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.database.sql import sql

TEN, MINUTE, HOUR, DAY = timedelta(seconds=10), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOW = datetime.now(UTC)
THIS_HOUR = NOW.replace(minute=0, second=0, microsecond=0)


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anew before each test: a day may have begun since this module was imported."""
    monkeypatch.setattr(f"{__name__}.NOW", now := datetime.now(UTC))
    monkeypatch.setattr(f"{__name__}.THIS_HOUR", now.replace(minute=0, second=0, microsecond=0))


@pytest.fixture
async def uow(engine: AsyncEngine, database_url: str) -> UnitOfWorkFactory:
    return UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(database_url, "test"))


@pytest.fixture
async def gpu(seed: Any) -> int:
    """The id of a GPU called `GPU-a`; another one is called `GPU-b`."""
    ids = await seed.node(cards=2)
    await seed.run("UPDATE gpus SET uuid = CASE index WHEN 0 THEN 'GPU-a' ELSE 'GPU-b' END")
    return int(ids[0])


async def rolled_until(seed: Any, at: datetime) -> None:
    await seed.run(
        "UPDATE gpu_use_state SET minutes_until = :at, hours_until = date_trunc('hour', CAST(:at AS timestamptz))",
        at=at,
    )


async def read(uow: UnitOfWorkFactory, gpu: int, start: datetime, end: datetime, step: timedelta) -> list[UsePoint]:
    async with uow() as work:
        spans = spans_of(start, end, step, await work.gpu_use.rolled())
        found = await work.gpu_use.points([(gpu, span) for span in spans], step)
    return roll_up(found.get(gpu, []), step)


async def test_looking_up_a_fleet_is_quick_also_by_a_prepared_plan(uow: UnitOfWorkFactory, seed: Any) -> None:
    """From the sixth time on PostgreSQL may use a plan for ten GPUs."""
    nodes = "SELECT 'fleet-' || n, true, true, now() FROM generate_series(1, 800) n"
    await seed.run(f"INSERT INTO nodes (name, ready, schedulable, last_seen_at) {nodes}")
    await seed.run(
        "INSERT INTO gpus (node_id, index, gpu_type, uuid, updated_at) "
        "SELECT n.id, i, 'h100', 'GPU-' || n.name || '-' || i, now() FROM nodes n, generate_series(0, 7) i"
    )
    await seed.run("ANALYZE nodes, gpus")
    gpus = {(f"GPU-fleet-{number}-{index}", None) for number in range(1, 801) for index in range(8)}
    async with uow() as work:
        await sql(work, "SET LOCAL plan_cache_mode = force_generic_plan")
        await sql(work, "SET LOCAL statement_timeout = '3s'")
        assert (await work.gpu_use.gpu_ids(gpus)).keys() == gpus


async def test_a_sample_is_read_as_it_was_stored(uow: UnitOfWorkFactory, gpu: int) -> None:
    at = NOW.replace(microsecond=0)
    sample = GpuSample(
        "GPU-a", at, 0.873, 40 * 2**30, 80 * 2**30, 312.5, 61, 2, 79, (GpuProcess(17, None), GpuProcess(18, 1))
    )
    assert len(await store_samples(uow, [sample])) == 1
    [point] = await read(uow, gpu, at, at + TEN, TEN)
    assert point.samples == 1
    assert point.utilisation is not None
    assert point.utilisation.mean == point.utilisation.most == pytest.approx(0.873)
    assert point.memory == Level(40 * 2**30, 40 * 2**30)
    assert point.power == Level(312.5, 312.5)
    assert point.temperature == Level(61, 61)
    assert (point.ecc_uncorrected, point.xid, point.processes) == (2, 79, 2)


async def test_an_agent_speaks_of_no_other_nodes_gpus(uow: UnitOfWorkFactory, seed: Any, gpu: int) -> None:
    node = await seed.run("SELECT n.name FROM nodes n JOIN gpus g ON g.node_id = n.id WHERE g.id = :id", id=gpu)
    at = NOW.replace(microsecond=0)
    lie, truth = GpuSample("GPU-a", at, 0.0, node="node-z"), GpuSample("GPU-a", at, 0.9, node=node)
    assert len(await store_samples(uow, [lie])) == 0
    assert await store_samples(uow, [lie, truth]) == [truth]
    [point] = await read(uow, gpu, at, at + TEN, TEN)
    assert point.utilisation == Level(0.9, 0.9)


async def test_what_was_not_sampled_is_not_zero(uow: UnitOfWorkFactory, gpu: int) -> None:
    at = NOW.replace(microsecond=0)
    assert len(await store_samples(uow, [GpuSample("GPU-a", at)])) == 1
    [point] = await read(uow, gpu, at, at + TEN, TEN)
    assert (point.utilisation, point.memory, point.power, point.temperature) == (None, None, None, None)
    assert (point.ecc_uncorrected, point.xid, point.processes) == (None, None, None)
    assert await read(uow, gpu, at + TEN, at + HOUR, TEN) == []


async def test_a_sample_that_is_sent_twice_is_stored_once(uow: UnitOfWorkFactory, gpu: int, seed: Any) -> None:
    at = NOW.replace(microsecond=0)
    first = [GpuSample("GPU-a", at, 0.5), GpuSample("GPU-b", at, 0.5)]
    await store_samples(uow, first)
    await store_samples(uow, [GpuSample("GPU-a", at, 1.0), GpuSample("GPU-a", at + TEN, 0.25), *first])
    rows = await seed.rows("SELECT gpu_id, utilisation FROM gpu_samples ORDER BY at, gpu_id")
    assert [(row["gpu_id"], row["utilisation"]) for row in rows] == [(gpu, 500), (gpu + 1, 500), (gpu, 250)]


async def test_unknown_gpus_and_other_times_are_left_out(uow: UnitOfWorkFactory, gpu: int, seed: Any) -> None:
    at = NOW.replace(microsecond=0)
    unknown, old, early = GpuSample("GPU-x", at), GpuSample("GPU-a", at - 2 * DAY), GpuSample("GPU-a", at + HOUR)
    assert len(await store_samples(uow, [unknown, old, early])) == 0
    assert len(await store_samples(uow, [])) == 0
    assert len(await store_samples(uow, [unknown, GpuSample("GPU-a", at)])) == 1
    assert await seed.run("SELECT count(*) FROM gpu_samples") == 1


async def test_roll_ups_are_those_of_the_domain(uow: UnitOfWorkFactory, gpu: int, seed: Any) -> None:
    begin = THIS_HOUR - 3 * HOUR
    samples = [
        GpuSample(
            "GPU-a",
            begin + n * TEN,
            (n % 7) / 7 if n % 5 else None,
            n * 2**20,
            None,
            n / 3,
            40 + n % 9,
            n,
            n % 11 or None,
        )
        for n in range(2 * 360)
        if not 60 <= n < 90
    ]
    await rolled_until(seed, begin)
    assert len(await store_samples(uow, samples)) == 690
    samples_read = await read(uow, gpu, begin, THIS_HOUR, TEN)
    assert len(samples_read) == 690
    await keep_use(uow)
    async with uow() as work:
        rolled = await work.gpu_use.rolled()
    assert rolled[Resolution.MINUTES] >= NOW - 2 * MINUTE
    assert rolled[Resolution.HOURS] >= THIS_HOUR - HOUR
    minutes = await read(uow, gpu, begin, begin + 2 * HOUR, MINUTE)
    assert_alike(minutes, roll_up(samples_read, MINUTE))
    assert len(minutes) == 115
    assert await seed.run("SELECT count(*) FROM gpu_hours") == 2
    hours = await read(uow, gpu, begin, begin + 2 * HOUR, HOUR)
    assert_alike(hours, roll_up(minutes, HOUR))
    # From the roll-ups alone, too.
    await seed.run("DELETE FROM gpu_samples")
    assert_alike(await read(uow, gpu, begin, begin + 2 * HOUR, MINUTE), minutes)
    await seed.run("DELETE FROM gpu_minutes")
    assert_alike(await read(uow, gpu, begin, begin + 2 * HOUR, HOUR), hours)


def assert_alike(found: list[UsePoint], expected: list[UsePoint]) -> None:
    assert [(point.at, point.samples, point.ecc_uncorrected, point.xid) for point in found] == [
        (point.at, point.samples, point.ecc_uncorrected, point.xid) for point in expected
    ]
    for one, other in zip(found, expected, strict=True):
        for name in ("utilisation", "memory", "power", "temperature"):
            ours, theirs = getattr(one, name), getattr(other, name)
            assert (ours is None) == (theirs is None), name
            assert ours is None or (ours.mean, ours.most) == pytest.approx((theirs.mean, theirs.most), rel=1e-5), name


async def test_a_late_sample_is_rolled_up_all_the_same(uow: UnitOfWorkFactory, gpu: int, seed: Any) -> None:
    begin = THIS_HOUR - 2 * HOUR
    await rolled_until(seed, begin)
    await store_samples(uow, [GpuSample("GPU-a", begin, 0.5)])
    await keep_use(uow)
    assert [point.samples for point in await read(uow, gpu, begin, begin + HOUR, HOUR)] == [1]
    await store_samples(uow, [GpuSample("GPU-a", begin + TEN, 1.0)])
    await keep_use(uow)
    await seed.run("DELETE FROM gpu_samples")
    [minute] = await read(uow, gpu, begin, begin + MINUTE, MINUTE)
    assert (minute.samples, minute.utilisation) == (2, Level(0.75, 1.0))
    [hour] = await read(uow, gpu, begin, begin + HOUR, HOUR)
    assert (hour.samples, hour.utilisation) == (2, Level(0.75, 1.0))


async def test_a_clock_that_goes_back_leaves_no_samples_of_times_that_come_again(
    uow: UnitOfWorkFactory, gpu: int, seed: Any
) -> None:
    """They would stay in place of new ones: a GPU in use now would look as idle as it was by the wrong clock."""
    begin = THIS_HOUR - HOUR
    await seed.run("UPDATE gpus SET uuid = 'GPU-c' WHERE id <> :id", id=gpu)
    await seed.run(
        "INSERT INTO gpu_samples (at, gpu_id, utilisation, xid) SELECT at, :gpu, 0, 0 "
        "FROM generate_series(CAST(:begin AS timestamptz) + interval '5 s', now() + interval '2h', interval '10s') at",
        gpu=gpu, begin=begin,
    )  # fmt: skip
    await seed.run(
        "INSERT INTO gpu_minutes (at, gpu_id, samples, utilisation_mean, utilisation) SELECT at, :gpu, 6, 0, 0 "
        "FROM generate_series(CAST(:begin AS timestamptz), now() + interval '2 h', interval '1 min') at",
        gpu=gpu, begin=begin,
    )  # fmt: skip
    await seed.run(
        "INSERT INTO gpu_hours (at, gpu_id, samples, utilisation_mean, utilisation) SELECT at, :gpu, 360, 0, 0 "
        "FROM generate_series(CAST(:begin AS timestamptz), now() + interval '1 h', interval '1 h') at",
        gpu=gpu, begin=begin,
    )  # fmt: skip
    await seed.run(
        "INSERT INTO gpu_errors (gpu_id, at, uuid, xid) VALUES (:gpu, :at, 'GPU-a', 79)", gpu=gpu, at=NOW + HOUR
    )
    await seed.run(
        "INSERT INTO gpu_speeds (gpu_id, at, busy, throttled) VALUES (:gpu, :at, 1, 0)", gpu=gpu, at=NOW + HOUR
    )
    health = "SELECT (SELECT count(*) FROM gpu_errors) + (SELECT count(*) FROM gpu_speeds)"
    await rolled_until(seed, NOW + 25 * HOUR)
    await keep_use(uow)
    assert await seed.run(health) == 2  # a clock so far behind may be wrong itself
    await rolled_until(seed, NOW + 2 * HOUR)
    step = datetime.now(UTC).replace(microsecond=0)
    busy = GpuSample("GPU-a", step + timedelta(seconds=8), 0.9)
    await seed.run("DELETE FROM gpu_samples WHERE at = :at", at=busy.at)
    await seed.run(
        "INSERT INTO gpu_samples (at, gpu_id, utilisation, xid) VALUES (:at, :gpu, 0, 0)", at=busy.at, gpu=gpu
    )
    assert await store_samples(uow, [busy]) == []
    await keep_use(uow)
    assert await store_samples(uow, [busy]) == [busy]
    [point] = await read(uow, gpu, busy.at, busy.at + TEN, TEN)
    assert (point.utilisation, await seed.run(health)) == (Level(0.9, 0.9), 0)
    for table, length in (("gpu_samples", timedelta(0)), ("gpu_minutes", MINUTE), ("gpu_hours", HOUR)):
        newest = await seed.run(f"SELECT max(at) FROM {table} WHERE at <> :at", at=busy.at)
        assert step - HOUR - MINUTE - 2 * TEN <= newest + length <= datetime.now(UTC), table
    assert await seed.run("SELECT count(*) FROM gpu_samples WHERE at < :at", at=begin + MINUTE) == 6


async def in_timescaledb(seed: Any) -> bool:
    return bool(await seed.run("SELECT relkind = 'r' FROM pg_class WHERE oid = 'gpu_samples'::regclass"))


async def make_day(seed: Any, parent: str, at: datetime) -> tuple[str, datetime]:
    """Make an empty day; TimescaleDB makes it for its first row. Returns it as `days` does."""
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if await in_timescaledb(seed):
        columns, values = ("samples", 1) if parent == "gpu_minutes" else ("xid", 0)
        await seed.run(f"INSERT INTO {parent} (at, gpu_id, {columns}) VALUES (:day, 0, {values})", day=day)
        await seed.run(f"DELETE FROM {parent} WHERE gpu_id = 0")
    else:
        bounds = f"FOR VALUES FROM ('{day:%F %T}Z') TO ('{day + DAY:%F %T}Z')"
        await seed.run(f"CREATE TABLE {parent}_{day:%Y%m%d} PARTITION OF {parent} {bounds}")
    return parent, day + DAY


async def days(seed: Any) -> set[tuple[str, datetime]]:
    """The days that there are, by table and end."""
    return {(row["parent"], row["ends_at"]) for row in await seed.rows("SELECT * FROM gpu_use_partitions")}


async def test_a_part_of_an_hour_before_days_off_is_rolled_up(uow: UnitOfWorkFactory, gpu: int, seed: Any) -> None:
    hour = THIS_HOUR.replace(hour=12) - 5 * DAY
    old, _ = [await make_day(seed, parent, hour) for parent in ("gpu_samples", "gpu_minutes")]
    await seed.run(
        "INSERT INTO gpu_samples (at, gpu_id, utilisation, xid) "
        "SELECT CAST(:hour AS timestamptz) + n * interval '1 minute', :gpu, 500, 0 FROM generate_series(2, 31) n",
        hour=hour, gpu=gpu,
    )  # fmt: skip
    await rolled_until(seed, hour)
    async with uow() as work:  # as far as the run before the days off came
        await work.gpu_use.roll_up(Resolution.MINUTES, hour, hour + 20 * MINUTE)
        await work.gpu_use.move({Resolution.MINUTES: hour + 20 * MINUTE, Resolution.HOURS: hour})
    await keep_use(uow)
    [row] = await seed.rows("SELECT at, gpu_id, samples FROM gpu_hours")
    assert (row["at"], row["gpu_id"], row["samples"]) == (hour, gpu, 30)
    assert await seed.run("SELECT count(*) FROM gpu_minutes") == 30
    # Only then its day is dropped, and the roll-ups go on where the days off ended.
    assert old not in await days(seed)
    async with uow() as work:
        rolled = await work.gpu_use.rolled()
    assert rolled[Resolution.MINUTES] >= NOW - 2 * MINUTE
    assert rolled[Resolution.HOURS] >= THIS_HOUR - HOUR


async def test_a_day_is_kept_until_it_is_rolled_up(
    uow: UnitOfWorkFactory, gpu: int, seed: Any, monkeypatch: Any
) -> None:
    hour = THIS_HOUR.replace(hour=12) - 5 * DAY
    for parent in ("gpu_samples", "gpu_minutes"):
        await make_day(seed, parent, hour)
    for minute in (0, 30):
        await seed.run(
            "INSERT INTO gpu_samples (at, gpu_id, xid) VALUES (:at, :gpu, 0)", at=hour + minute * MINUTE, gpu=gpu
        )
    await rolled_until(seed, hour)
    monkeypatch.setattr(keeping, "STEPS", 1)
    await keep_use(uow)
    assert await seed.run("SELECT count(*) FROM gpu_samples") == 2
    monkeypatch.undo()
    await keep_use(uow)
    assert await seed.run("SELECT count(*) FROM gpu_samples") == 0
    assert await seed.run("SELECT sum(samples) FROM gpu_hours") == 2


async def test_a_transaction_rolls_up_ten_minutes_at_most(
    uow: UnitOfWorkFactory, gpu: int, seed: Any, monkeypatch: Any
) -> None:
    spans = []
    roll = GpuUse.roll_up

    async def noted(self: GpuUse, resolution: Resolution, start: datetime, until: datetime) -> None:
        spans.append((resolution, until - start))
        await roll(self, resolution, start, until)

    monkeypatch.setattr(GpuUse, "roll_up", noted)
    await store_samples(uow, [GpuSample("GPU-a", THIS_HOUR - 3 * HOUR, 0.5)])
    await rolled_until(seed, NOW - 400 * DAY)
    await keep_use(uow)
    assert spans
    assert max(length for resolution, length in spans if resolution is Resolution.MINUTES) <= 10 * MINUTE
    # Times before the oldest samples are skipped.
    assert len(spans) <= 200
    async with uow() as work:
        assert (await work.gpu_use.rolled())[Resolution.MINUTES] >= NOW - 3 * DAY


async def test_days_are_made_ahead_and_dropped_when_they_are_over(uow: UnitOfWorkFactory, seed: Any) -> None:
    await keep_use(uow)
    made = await days(seed)
    midnight = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    ahead = {(parent, midnight + n * DAY) for parent in ("gpu_samples", "gpu_minutes") for n in (0, 1, 2)}
    assert made == set() if await in_timescaledb(seed) else made >= ahead  # those of yesterday, too, after midnight
    samples, minutes, old_minutes = [
        await make_day(seed, parent, NOW - age * DAY)
        for parent, age in (("gpu_samples", 3), ("gpu_minutes", 3), ("gpu_minutes", 32))
    ]
    assert await days(seed) == made | {samples, minutes, old_minutes}
    await keep_use(uow)
    assert await days(seed) == made | {minutes}


async def test_who_reads_for_long_puts_the_drop_off(uow: UnitOfWorkFactory, seed: Any, database_url: str) -> None:
    old = await make_day(seed, "gpu_samples", NOW - 3 * DAY)
    reader = await asyncpg.connect(database_url.replace("postgresql+asyncpg", "postgresql"))
    try:
        async with reader.transaction():
            await reader.execute("SELECT count(*) FROM gpu_samples")
            with pytest.raises(LockTimeoutError):
                await keep_use(uow)
        await keep_use(uow)
    finally:
        await reader.close()
    assert old not in await days(seed)


async def test_a_day_takes_as_long_as_it_takes_to_compress(seed: Any, database_url: str) -> None:
    await seed.run(
        "CREATE OR REPLACE FUNCTION drop_gpu_use_partition() RETURNS text LANGUAGE sql AS "
        "'SELECT NULL::text FROM pg_sleep(4)'"
    )
    impatient = open_engine(database_url, pool=1, application="test", statement_s=3)
    try:
        await keep_use(UnitOfWorkFactory(impatient, await open_client(impatient), PostgresWakeups(database_url, "t")))
    finally:
        await impatient.dispose()


async def test_a_job_has_the_gpus_of_all_its_attempts_and_no_slots(uow: UnitOfWorkFactory, gpu: int, seed: Any) -> None:
    ada = await seed.user()
    job = await seed.job("job-a", ada)
    await seed.allocate(job, gpu)
    await seed.run("UPDATE allocations SET held = false, released_at = now()")
    await seed.allocate(job, gpu, seed.now + HOUR, seed.now + 2 * HOUR)
    await seed.run(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, planned) "
        "VALUES (:job, 0, :gpu, 0, tstzrange(:start, :end), false, :start, true)",
        job=job, gpu=gpu + 1, start=seed.now + 5 * HOUR, end=seed.now + 6 * HOUR,
    )  # fmt: skip
    async with uow() as work:
        held = await work.gpu_use.of_job(job)
        assert [(one.uuid, one.start, one.until) for one in held] == [
            ("GPU-a", seed.now, seed.now + HOUR),
            ("GPU-a", seed.now + HOUR, None),
        ]
        assert [one.index for one in await work.gpu_use.of_node("node-a")] == [0, 1]
        assert await work.gpu_use.of_node("node-x") == []


async def test_a_gpu_that_moved_has_samples_where_it_is(uow: UnitOfWorkFactory, gpu: int, seed: Any) -> None:
    await seed.run("UPDATE gpus SET uuid = 'GPU-a', condition = CASE index WHEN 0 THEN 'lost' ELSE 'usable' END")
    await store_samples(uow, [GpuSample("GPU-a", NOW.replace(microsecond=0), 0.5)])
    assert [row["gpu_id"] for row in await seed.rows("SELECT gpu_id FROM gpu_samples")] == [gpu + 1]
