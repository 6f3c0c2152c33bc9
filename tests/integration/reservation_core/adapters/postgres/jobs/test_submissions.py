"""What a submission leaves in the queue."""

import json

from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.connection import direct
from tests.integration.reservation_core.adapters.postgres.conftest import Seed

WORDS = {"status": "queued", "reason_code": "submitted", "reason": "x", "event_kind": "submitted", "now": Seed.now}


def job(job_id: str, user_id: int) -> dict[str, object]:
    """A submission as the statement reads it."""
    return {
        "id": job_id,
        "kind": "job",
        "user_id": user_id,
        "gpus": 1,
        "nodes": 1,
        "duration_s": 60,
        "priority": 0,
        "actor": "ada",
        "workload": {"command": ["true"]},
        "created_at": "2030-01-01T00:00:00Z",
    }


async def test_its_message_is_as_if_pgmq_had_sent_it(engine: AsyncEngine, seed: Seed) -> None:
    """The statement writes it itself: whatever a newer PGMQ puts into such a row must be found here."""
    user_id = await seed.user()
    async with engine.begin() as connection:
        batch = json.dumps([job("job-a", user_id), job("job-b", user_id)])
        await direct.fetch(connection, "submit_reservations", {"batch": batch, **WORDS})
    written = await seed.rows("SELECT * FROM pgmq.q_gpu_jobs ORDER BY msg_id")
    assert [row["message"]["id"] for row in written] == ["job-a", "job-b"]
    await seed.run(
        "SELECT count(*) FROM pgmq.send_batch('gpu_jobs', "
        "(SELECT array_agg(message ORDER BY msg_id) FROM pgmq.q_gpu_jobs))"
    )
    sent = (await seed.rows("SELECT * FROM pgmq.q_gpu_jobs ORDER BY msg_id"))[len(written) :]
    of_their_own = {"msg_id", "enqueued_at", "vt"}
    assert [{k: v for k, v in row.items() if k not in of_their_own} for row in written] == [
        {k: v for k, v in row.items() if k not in of_their_own} for row in sent
    ]
    for row in [*written, *sent]:
        assert abs((row["vt"] - row["enqueued_at"]).total_seconds()) < 1
