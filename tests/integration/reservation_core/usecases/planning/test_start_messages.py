"""The queues in the statement that commits starts: it writes and deletes their rows itself."""

import pytest

from reservation_core.ports.planning.planning import LostLeadershipError
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import World


async def test_the_messages_of_starts_are_as_if_pgmq_had_sent_them(world: World) -> None:
    """Whatever a newer PGMQ puts into such a row must be found here."""
    ids = {await world.submitted(gpus=1), await world.submitted(gpus=1)}
    await (await world.planner()).cycle()
    messages = (
        "SELECT *, abs(extract(epoch FROM vt - enqueued_at)) < 1 AS due FROM pgmq.q_pod_operations ORDER BY msg_id"
    )
    written = [row._asdict() for row in await world.sql(messages)]
    assert {row["message"]["id"] for row in written} == ids
    async with world.uow() as uow:
        again = "SELECT array_agg(message ORDER BY msg_id) FROM pgmq.q_pod_operations"
        await sql(uow, f"SELECT count(*) FROM pgmq.send_batch('pod_operations', ({again}))")
    sent = [row._asdict() for row in await world.sql(messages)][len(written) :]
    of_their_own = {"msg_id", "enqueued_at", "vt"}
    assert [{k: v for k, v in row.items() if k not in of_their_own} for row in written] == [
        {k: v for k, v in row.items() if k not in of_their_own} for row in sent
    ]


async def test_messages_are_forgotten_under_the_lease_alone(world: World) -> None:
    """Such a statement commits by itself: no transaction takes back what it deletes."""
    deposed, leading = await world.planner(), await world.planner()
    await world.submitted()
    ids = [row.msg_id for row in await world.sql("SELECT msg_id FROM pgmq.q_gpu_jobs")]
    async with world.uow(one_statement=True) as uow:
        with pytest.raises(LostLeadershipError):
            await uow.planning.commit(deposed._epoch, [], world.clock.now(), ids)
        assert await world.depth("gpu_jobs") == len(ids)
        await uow.planning.commit(leading._epoch, [], world.clock.now(), ids)
    assert await world.depth("gpu_jobs") == 0
