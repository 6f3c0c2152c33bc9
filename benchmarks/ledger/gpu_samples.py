"""Samples of the use of GPUs: storing them, against a bare COPY of the same rows; their size; and reading a job's day.

A batch is a minute of 10,000 GPUs, six samples of each, in one transaction; the bare COPY of it is another, into a
table without index or checks. Rounds alternate. How long one look takes by itself, 10,000 rows, stands beside it. A
job's day (8 GPUs, steps of 5 minutes) is read when there is one day, and again after 90: of 1,000 GPUs the hours, of
16 of them 30 days of minutes. At last the sum of an hour by users and projects, with a job on each of the 10,000 GPUs.
"""

import time
from datetime import UTC, datetime, timedelta

import asyncpg
import uvloop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from benchmarks.measuring.databases import add_cluster, database, engine
from benchmarks.measuring.figures import Figure
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.gpu_use.samples import GpuProcess, GpuSample
from reservation_core.ports.gpu_use import HeldGpu
from reservation_core.runtime.processes.garbage import calm_garbage_collector
from reservation_core.usecases.gpu_use.read_use import read_points
from reservation_core.usecases.gpu_use.store_samples import store_samples

GPUS = 10_000
ROUNDS = 7
LOOKS = 6
"""Looks in a batch."""
_JOB = 8
_WITH_MINUTES = 16
_READS = 40
_TEN = timedelta(seconds=10)
_DAY = timedelta(days=1)
_PROCESSES = (GpuProcess(4711, None),)
_COLUMNS = ("at", "gpu_id", "memory_kib", "power_w", "ecc_errors", "utilisation", "temperature_c", "xid", "processes")
_LEVELS = (
    "utilisation_mean, utilisation, memory_mean_kib, memory_kib, power_mean_w, power_w, temperature_mean_c, "
    "temperature_c, ecc_errors, processes"
)
_VALUES = "500, 900, 40e6, 41e6, 300, 400, 60, 65, 0, 1"


def measure() -> list[Figure]:
    """The rate of storing, the size of a sample, and the time of a read with a long history."""
    with database() as url:
        return uvloop.run(_measure(url))


async def _measure(url: str) -> list[Figure]:
    await add_cluster(url, nodes=GPUS // 8, gpus_per_node=8)
    opened = open_engine(url, pool=2, application="bench")
    own = engine(url)
    uow = UnitOfWorkFactory(opened, await open_client(opened), PostgresWakeups(url, "bench"))
    async with own.begin() as connection:
        await connection.execute(text("UPDATE gpus SET uuid = 'GPU-' || id"))
        await connection.execute(text("CREATE TABLE bare (LIKE gpu_samples)"))
        ids = [row.id for row in await connection.execute(text("SELECT id FROM gpus ORDER BY id"))]
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    bytes_each = await _bytes_of_a_sample(own, now)
    calm_garbage_collector(in_small_parts=True)  # as the processor does
    ours, bare, looks = await _rounds(uow, own, url, ids, now)
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    middle = [sorted(rates)[ROUNDS // 2] for rates in (ours, bare, looks)]
    stored = "{:,.0f} rows/s stored, {:,.0f} by bare COPY; {:,.0f} stored look by look".format(*middle)
    await _add_past(own, now, 1)
    short = await _times(uow, ids, now)
    await _add_past(own, now, 90)
    recent, old = await _times(uow, ids, now), await _times(uow, ids, now - 20 * _DAY)
    summed = await _times_to_sum_up(uow, own, now - 26 * timedelta(hours=1))
    await own.dispose()
    await opened.dispose()
    read = (
        f"{1000 * min(short):.1f} ms with one day; with 90 days {1000 * min(recent):.1f} ms, and of 20 days ago "
        f"{1000 * min(old):.1f} ms"
    )
    return [
        Figure("storing samples ÷ bare COPY of the same rows", "x", ratios, 0.3, at_least=True, detail=stored),
        Figure("a sample on disk, with its index", " bytes", [bytes_each], 100, at_least=False),
        Figure(
            "a job's day with 90 days ÷ with one", "x", [min(recent) / min(short)], 1.5, at_least=False, detail=read
        ),
        Figure("summing up an hour of 10,000 GPUs in jobs", " s", summed, 5, at_least=False),
    ]


def _look(ids: list[int], at: datetime) -> list[GpuSample]:
    return [
        GpuSample(
            f"GPU-{gpu_id}", at, gpu_id % 100 / 100, 40 * 2**30 + gpu_id * 1024, 80 * 2**30, 300.0 + gpu_id % 99,
            40 + gpu_id % 30, 0, None, _PROCESSES,
        )
        for gpu_id in ids
    ]  # fmt: skip


async def _rounds(
    uow: UnitOfWorkFactory, own: AsyncEngine, url: str, ids: list[int], now: datetime
) -> tuple[list[float], list[float], list[float]]:
    """Rows a second of each round, stored, by bare COPY, and stored look by look; the first round is warm-up."""
    driver = await asyncpg.connect(url.replace("postgresql+asyncpg", "postgresql"))
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    first = now - timedelta(hours=2)
    for number in range(ROUNDS + 1):
        at = first + number * (LOOKS + 1) * _TEN
        batch = [sample for look in range(LOOKS) for sample in _look(ids, at + look * _TEN)]
        stored_s = await _seconds_to_store(uow, batch)
        look_s = await _seconds_to_store(uow, _look(ids, at + LOOKS * _TEN))
        async with own.connect() as connection:
            rows = await connection.execute(
                text(f"SELECT {', '.join(_COLUMNS)} FROM gpu_samples WHERE at >= :first AND at < :end"),
                {"first": at, "end": at + LOOKS * _TEN},
            )
            records = [tuple(row) for row in rows]
        begun = time.monotonic()
        await driver.copy_records_to_table("bare", records=records, columns=_COLUMNS)
        bare_s = time.monotonic() - begun
        if number:
            rates = (GPUS * LOOKS / stored_s, GPUS * LOOKS / bare_s, GPUS / look_s)
            for rate, of_rounds in zip(rates, found, strict=True):
                of_rounds.append(rate)
    await driver.close()
    return found


async def _seconds_to_store(uow: UnitOfWorkFactory, samples: list[GpuSample]) -> float:
    begun = time.monotonic()
    if len(await store_samples(uow, samples)) != len(samples):
        raise RuntimeError("some samples were left out")
    return time.monotonic() - begun


async def _bytes_of_a_sample(own: AsyncEngine, now: datetime) -> float:
    """Of 20 hours of 100 GPUs, look by look: so full are the pages of an index whose GPUs have many samples."""
    async with own.begin() as connection:
        await connection.execute(
            text(
                f"INSERT INTO gpu_samples ({', '.join(_COLUMNS)}) SELECT t, g, 40000000, 300, 0, 500, 60, 0, 1 "
                "FROM generate_series(CAST(:start AS timestamptz), CAST(:end AS timestamptz), :step) t, "
                "generate_series(1, 100) g ORDER BY t, g"
            ),
            {"start": now - timedelta(hours=23), "end": now - timedelta(hours=3), "step": _TEN},
        )
        size = "SELECT sum(pg_total_relation_size(oid)) FROM gpu_use_partitions WHERE parent = 'gpu_samples'"
        count = "SELECT count(*) FROM gpu_samples"
        return float((await connection.execute(text(f"SELECT CAST(({size}) AS float8) / ({count})"))).scalar_one())


async def _times(uow: UnitOfWorkFactory, ids: list[int], end: datetime) -> list[float]:
    """Seconds of each read of a job's day that ended at `end`."""
    held = [HeldGpu(gpu_id, "node", 0, None, "h100", None, False, end - _DAY, end) for gpu_id in ids[:_JOB]]
    found = []
    for _ in range(_READS):
        begun = time.monotonic()
        async with uow() as work:
            points = await read_points(work, held, end - _DAY, end, timedelta(minutes=5))
        found.append(time.monotonic() - begun)
        if not all(of_gpu for _, of_gpu in points):
            raise RuntimeError("a GPU has no points")
    return found[1:]


async def _add_past(own: AsyncEngine, now: datetime, days: int) -> None:
    """So many days of hours, and as many of minutes, at most 30."""
    today = now.replace(hour=0, minute=0, second=0)
    minutes = min(days, 30)
    async with own.begin() as connection:
        for age in range(2, minutes + 1) if await _in_partitions(connection) else ():
            bounds = f"FROM ('{today - age * _DAY:%F %T}Z') TO ('{today - (age - 1) * _DAY:%F %T}Z')"
            await connection.execute(
                text(f"CREATE TABLE gpu_minutes_{age} PARTITION OF gpu_minutes FOR VALUES {bounds}")
            )
        for table, step, samples, start, gpus in (
            ("gpu_minutes", timedelta(minutes=1), 6, now - minutes * _DAY, _WITH_MINUTES),
            ("gpu_hours", timedelta(hours=1), 360, today - days * _DAY, 1000),
        ):
            await connection.execute(
                text(
                    f"INSERT INTO {table} (at, gpu_id, samples, {_LEVELS}) SELECT t, g, {samples}, {_VALUES} "
                    "FROM generate_series(CAST(:start AS timestamptz), CAST(:end AS timestamptz), :step) t, "
                    "generate_series(1, :gpus) g ON CONFLICT DO NOTHING"
                ),
                {"start": start, "end": now, "step": step, "gpus": gpus},
            )
        await connection.execute(text("UPDATE gpu_use_state SET minutes_until = :at"), {"at": now})
    async with own.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        while (await autocommit.execute(text("SELECT drop_gpu_use_partition()"))).scalar_one() is not None:
            pass  # days that are over, compressed by TimescaleDB
        await autocommit.execute(text("VACUUM ANALYZE gpu_minutes, gpu_hours"))


async def _in_partitions(connection: AsyncConnection) -> bool:
    kind = await connection.execute(text("SELECT relkind = 'p' FROM pg_class WHERE oid = 'gpu_samples'::regclass"))
    return bool(kind.scalar_one())


async def _times_to_sum_up(uow: UnitOfWorkFactory, own: AsyncEngine, end: datetime) -> list[float]:
    """Seconds of each sum of the hour before `end`, in which each GPU was in a job of one of 200 users."""
    hour = end.replace(minute=0) - timedelta(hours=1)
    during = {"start": hour - timedelta(hours=1), "end": hour + timedelta(hours=2)}
    async with own.begin() as connection:
        await connection.execute(
            text(
                f"INSERT INTO gpu_minutes (at, gpu_id, samples, {_LEVELS}) SELECT t, g.id, 6, {_VALUES} FROM gpus g, "
                "generate_series(CAST(:start AS timestamptz), CAST(:end AS timestamptz), interval '1 min') t "
                "ON CONFLICT DO NOTHING"
            ),
            {"start": hour, "end": hour + timedelta(minutes=59)},
        )
        await connection.execute(
            text(
                "INSERT INTO users (name, role, created_at) SELECT 'summed-' || n, 'user', now() "
                "FROM generate_series(1, 200) n"
            )
        )
        await connection.execute(
            text(
                "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, "
                "duration, priority, workload, created_at, changed_at, attempt, started_at, finished_at, exit_code) "
                "SELECT 'job-s' || g.id, 'job', (SELECT min(id) FROM users WHERE name LIKE 'summed-%') + g.id % 200, "
                "'succeeded', 'succeeded', 'Over.', 1, g.gpu_type, 1, interval '3 hours', 0, "
                """'{"command": ["true"]}', CAST(:start AS timestamptz), CAST(:end AS timestamptz), 1, """
                "CAST(:start AS timestamptz), CAST(:end AS timestamptz), 0 FROM gpus g ORDER BY g.id"
            ),
            during,
        )
        await connection.execute(
            text(
                "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, released_at, "
                "created_at) SELECT 'job-s' || g.id, 1, g.id, 0, "
                "tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz)), false, "
                "CAST(:end AS timestamptz), CAST(:start AS timestamptz) FROM gpus g"
            ),
            during,
        )
    async with own.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await autocommit.execute(text("VACUUM ANALYZE gpu_minutes, reservations, allocations"))
    found = []
    for _ in range(ROUNDS):
        begun = time.monotonic()
        async with uow() as work:
            await work.gpu_use.sum_up(hour)
        found.append(time.monotonic() - begun)
    async with own.connect() as connection:
        count = "SELECT sum(samples) FROM gpu_use_sums WHERE at = :hour"
        if (await connection.execute(text(count), {"hour": hour})).scalar_one() != GPUS * 360:
            raise RuntimeError("not all samples were summed up")
    return found
