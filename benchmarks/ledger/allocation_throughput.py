"""Planning and allocating 5,000 waiting 1-GPU jobs on 8,000 cards, committed, against claiming them one by one.

The peer does what such systems usually do: several workers, each claiming one job and one free card at a time with
`FOR UPDATE SKIP LOCKED`, in one statement on a prepared connection, writing the same rows (ledger with the same
constraints, status, event, message). It plans nothing: no best fit, no order, no estimate.
"""

import asyncio
import time
from datetime import timedelta

import asyncpg
import uvloop

from benchmarks.measuring.databases import add_cluster, add_waiting, database
from benchmarks.measuring.figures import Figure
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.postgres.connection.engine import open_connection, open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.usecases.planning.planner import Planner, PlannerRules

ROUNDS = 3
JOBS = 5_000
PEER_JOBS = 1_000
PEER_WORKERS = 4
RULES = PlannerRules(
    start_allowance=timedelta(minutes=2),
    window=20_000,
    batch=1000,
    messages=1000,
    estimates=500,
    estimate_every=timedelta(seconds=1),
    reload_every=timedelta(minutes=1),
    max_reads=5,
)

_CLAIM = """
WITH job AS (
    SELECT id FROM reservations WHERE status = 'queued' ORDER BY line_type, line_priority, seq
    LIMIT 1 FOR UPDATE SKIP LOCKED
), card AS (
    SELECT gpu_id FROM peer_cards WHERE free ORDER BY gpu_id LIMIT 1 FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE peer_cards c SET free = false FROM card WHERE c.gpu_id = card.gpu_id AND EXISTS (SELECT 1 FROM job)
    RETURNING c.gpu_id
), started AS (
    UPDATE reservations r SET status = 'starting', attempt = attempt + 1, version = version + 1, changed_at = now(),
        reason_code = 'allocated', reason = 'x', range_end = now() + interval '62 minutes'
    FROM job WHERE r.id = job.id RETURNING r.id, r.attempt, r.range_end
), placed AS (
    INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
    SELECT id, attempt, gpu_id, 0, tstzrange(now(), range_end), true, now() FROM started, taken
), recorded AS (
    INSERT INTO events (reservation_id, at, actor, kind, before, after)
    SELECT id, now(), 'peer', 'allocated', 'queued', 'starting' FROM started
)
SELECT pgmq.send('pod_operations', jsonb_build_object('v', 1, 'op', 'create', 'id', id, 'attempt', attempt))
FROM started
"""


def measure() -> list[Figure]:
    """Each round on a fresh database."""
    ours: list[float] = []
    peers: list[float] = []
    for _ in range(ROUNDS):
        with database() as url:
            uvloop.run(add_cluster(url, nodes=1000, gpus_per_node=8))
            uvloop.run(add_waiting(url, PEER_JOBS, prefix="p"))
            peers.append(uvloop.run(_peer(url)))
        with database() as url:
            uvloop.run(add_cluster(url, nodes=1000, gpus_per_node=8))
            ours.append(uvloop.run(_ours(url)))
    ratios = [mine / theirs for mine, theirs in zip(ours, peers, strict=True)]
    detail = f"planned {sorted(ours)[ROUNDS // 2]:.0f} jobs/s, claimed one by one {sorted(peers)[ROUNDS // 2]:.0f}/s"
    return [
        Figure("5,000 jobs on 8,000 GPUs: planned ÷ SKIP LOCKED claims", "x", ratios, 5, at_least=True, detail=detail)
    ]


async def _ours(url: str) -> float:
    engine = open_engine(url, pool=5, application="bench")
    wakeups = PostgresWakeups(url, "bench")
    uow = UnitOfWorkFactory(engine, await open_client(engine), wakeups)
    async with uow() as unit:
        epoch = await unit.planning.acquire("bench", timedelta(minutes=10))
    assert epoch is not None
    planner = Planner(uow, SystemClock(), epoch, RULES)
    await planner.cycle()  # a planner at work has its inventory in memory
    await add_waiting(url, JOBS, prefix="j")
    started = time.monotonic()
    done = 0
    while done < JOBS:
        done += (await planner.cycle()).started
    elapsed = time.monotonic() - started
    await engine.dispose()
    return JOBS / elapsed


async def _peer(url: str) -> float:
    connections: list[asyncpg.Connection] = [await open_connection(url, "peer") for _ in range(PEER_WORKERS)]
    await connections[0].execute(
        "CREATE TABLE peer_cards AS SELECT id AS gpu_id, true AS free FROM gpus;"
        "CREATE INDEX ON peer_cards (gpu_id) WHERE free; ANALYZE peer_cards"
    )
    left = PEER_JOBS

    async def work(connection: asyncpg.Connection) -> None:
        nonlocal left
        claim = await connection.prepare(_CLAIM)
        while left > 0:
            if await claim.fetchval() is not None:
                left -= 1

    started = time.monotonic()
    await asyncio.gather(*(work(connection) for connection in connections))
    elapsed = time.monotonic() - started
    for connection in connections:
        await connection.close()
    return PEER_JOBS / elapsed
