"""A fresh database, and rows to begin with."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection.engine import open_engine

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Seed:
    """Writes rows directly, each call in a transaction of its own."""

    now = NOW
    hour = HOUR

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    async def run(self, sql: str, **values: object) -> int:
        """One statement; returns its first value (0 when there is none)."""
        async with self.engine.begin() as connection:
            result = await connection.execute(text(sql), values)
            return (result.scalar() or 0) if result.returns_rows else 0

    async def rows(self, sql: str, **values: object) -> list[dict[str, object]]:
        """One query's rows."""
        async with self.engine.begin() as connection:
            return [dict(row) for row in (await connection.execute(text(sql), values)).mappings()]

    async def user(self, name: str = "ada", role: str = "user") -> int:
        """A user; returns the id."""
        return await self.run(
            "INSERT INTO users (name, role, created_at) VALUES (:name, :role, :now) RETURNING id",
            name=name, role=role, now=NOW,
        )  # fmt: skip

    async def node(self, name: str = "node-a", cards: int = 2, gpu_type: str = "h100") -> list[int]:
        """A ready node; returns its cards' ids in index order."""
        node_id = await self.run(
            "INSERT INTO nodes (name, ready, schedulable, last_seen_at) VALUES (:name, true, true, :now) RETURNING id",
            name=name, now=NOW,
        )  # fmt: skip
        return [
            await self.run(
                "INSERT INTO gpus (node_id, index, gpu_type, updated_at) VALUES (:node, :index, :type, :now) "
                "RETURNING id",
                node=node_id,
                index=index,
                type=gpu_type,
                now=NOW,
            )
            for index in range(cards)
        ]

    async def job(self, job_id: str, user_id: int, status: str = "queued", **fields: object) -> str:
        """A job of one hour; `fields` are further columns."""
        values: dict[str, object] = {
            "id": job_id,
            "kind": "job",
            "user_id": user_id,
            "status": status,
            "reason_code": "submitted",
            "reason": "Waits to be planned.",
            "gpus": 1,
            "gpu_type": "h100",
            "nodes": 1,
            "duration": HOUR,
            "priority": 0,
            "created_at": NOW,
            "changed_at": NOW,
            **fields,
        }
        columns = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        await self.run(f"INSERT INTO reservations ({columns}, workload) VALUES ({places}, '{{}}')", **values)
        return job_id

    async def allocate(
        self, job_id: str, gpu_id: int, start: datetime = NOW, end: datetime = NOW + HOUR, *, held: bool = True
    ) -> None:
        """A row of the ledger."""
        await self.run(
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
            "VALUES (:job, 1, :gpu, 0, tstzrange(:start, :end), :held, :now)",
            job=job_id, gpu=gpu_id, start=start, end=end, held=held, now=NOW,
        )  # fmt: skip


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """A pool on a fresh, migrated database."""
    engine = open_engine(database_url, pool=5, application="tests")
    yield engine
    await engine.dispose()


@pytest.fixture
def seed(engine: AsyncEngine) -> Seed:
    """Rows to begin with."""
    return Seed(engine)
