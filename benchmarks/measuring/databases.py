"""A durable PostgreSQL of one's own for a benchmark, with people, nodes and cards in it."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from reservation_core.adapters.postgres.connection.migrating import upgrade
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres

SERVER = {"shared_buffers": "256MB", "max_connections": "100"}
"""More memory than the workstation's default; durability (fsync, synchronous_commit) as in earnest."""


@contextmanager
def database() -> Iterator[str]:
    """A migrated database; its URL. `GPU_DEV_BENCHMARK_DATABASE_URL` names an empty one to use on another server."""
    given = os.environ.get("GPU_DEV_BENCHMARK_DATABASE_URL")
    if given:
        asyncio.run(upgrade(given))
        yield given
        return
    home = Path(tempfile.mkdtemp(prefix="gpu-dev-bench-"))
    home.chmod(0o711)  # the server's account passes through: its files lie here, not elsewhere
    server = EmbeddedPostgres(home, settings=SERVER)
    try:
        url = server.start()
        asyncio.run(upgrade(url))
        yield url
    finally:
        server.destroy()
        shutil.rmtree(home, ignore_errors=True)


def engine(url: str) -> AsyncEngine:
    """For the benchmark's own statements."""
    return create_async_engine(url)


async def add_cluster(url: str, *, nodes: int, gpus_per_node: int) -> None:
    """One user and so many nodes full of `h100`."""
    opened = engine(url)
    async with opened.begin() as connection:
        await connection.execute(
            text("INSERT INTO users (name, role, created_at) VALUES ('bench', 'admin', now()) ON CONFLICT DO NOTHING")
        )
        await connection.execute(
            text(
                "INSERT INTO nodes (name, ready, schedulable, last_seen_at) "
                "SELECT 'node-' || lpad(CAST(n AS text), 5, '0'), true, true, now() FROM generate_series(1, :nodes) n"
            ),
            {"nodes": nodes},
        )
        await connection.execute(
            text(
                "INSERT INTO gpus (node_id, index, gpu_type, updated_at) "
                "SELECT n.id, i, 'h100', now() FROM nodes n, generate_series(0, :last) i"
            ),
            {"last": gpus_per_node - 1},
        )
        await connection.execute(text("ANALYZE"))
    await opened.dispose()


async def add_waiting(url: str, jobs: int, *, prefix: str) -> None:
    """So many waiting 1-GPU jobs with their messages, as submitting would have left them."""
    opened = engine(url)
    async with opened.begin() as connection:
        await connection.execute(
            text(
                "WITH stored AS ("
                "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, "
                "duration, priority, workload, created_at, changed_at) "
                "SELECT 'job-' || :prefix || lpad(CAST(n AS text), 8, '0'), 'job', u.id, 'queued', 'submitted', 'x', "
                "1, 'h100', 1, interval '1 hour', 0, CAST('{\"command\": [\"true\"]}' AS jsonb), now(), now() "
                "FROM users u, generate_series(1, :jobs) n WHERE u.name = 'bench' RETURNING id, seq) "
                "SELECT count(*) FROM (SELECT pgmq.send_batch('gpu_jobs', array_agg("
                "jsonb_build_object('v', 1, 'kind', 'submitted', 'id', id) ORDER BY seq)) "
                "FROM stored GROUP BY seq / 10000000) AS sent"
            ),
            {"prefix": prefix, "jobs": jobs},
        )
    async with opened.connect() as connection:
        autocommit = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await autocommit.execute(text("VACUUM ANALYZE"))
    await opened.dispose()
