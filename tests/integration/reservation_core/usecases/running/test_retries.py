"""A job that is retried, in the ledger."""

from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.usecases.jobs.cancel import cancel
from tests.integration.reservation_core.usecases.world import World, pod

RUN = timedelta(minutes=20)


async def end(world: World, job_id: str, exit_code: int, attempt: int) -> None:
    """Its pod ends after twenty minutes, and is gone."""
    world.clock.go_on(RUN)
    name = pod(job_id, attempt=attempt)
    await world.see(world.cluster.show(name, PodPhase.FINISHED, exit_code=exit_code))
    await world.operate()


async def start(world: World, job_id: str, attempt: int) -> None:
    await world.plan()
    await world.operate()
    name = pod(job_id, attempt=attempt)
    await world.see(world.cluster.show(name, PodPhase.RUNNING, started_at=world.clock.now()))
    assert (await world.row(job_id)).status is JobStatus.RUNNING


async def test_it_runs_until_it_succeeds_in_pods_of_its_own_each_time(world: World) -> None:
    job_id = await world.ran(retries={"max": 2, "on": ["failed"]})
    place = (await world.row(job_id)).seq
    await end(world, job_id, 3, attempt=1)
    row = await world.row(job_id)
    assert (row.status, row.retried, row.reason.code) == (JobStatus.QUEUED, 1, ReasonCode.REQUEUED)
    assert (row.seq, row.exit_code, row.started_at) == (place, None, None)
    assert not any(card.held for card in await world.cards(job_id))
    await start(world, job_id, attempt=2)
    await end(world, job_id, 0, attempt=2)
    row = await world.row(job_id)
    assert (row.status, row.retried, row.attempt, row.exit_code) == (JobStatus.SUCCEEDED, 1, 2, 0)
    kinds = [
        "submitted",
        "allocated",
        "started",
        "finished",
        "retried",
        "allocated",
        "started",
        "finished",
        "succeeded",
    ]
    assert await world.kinds(job_id) == kinds
    [event] = [event for event in await world.events(job_id) if event.kind == "retried"]
    assert event.data == {"attempt": 1, "cause": "command_failed", "exit_code": 3}


async def test_the_ledger_says_when_each_run_began(world: World) -> None:
    job_id = await world.ran(retries={"max": 1})
    first = (await world.row(job_id)).started_at
    await end(world, job_id, 1, attempt=1)
    await start(world, job_id, attempt=2)
    await end(world, job_id, 1, attempt=2)
    row = await world.row(job_id)
    assert (row.status, row.reason.code) == (JobStatus.FAILED, ReasonCode.COMMAND_FAILED)
    rows = await world.sql("SELECT attempt, ran_from FROM allocations WHERE NOT planned ORDER BY attempt")
    assert [tuple(found) for found in rows] == [(1, first), (2, None)]
    [wasted] = await world.sql("SELECT sum(wasted_us) FROM usage_of(ARRAY[:id])", id=job_id)
    assert wasted[0] == 0


async def test_a_retry_waits_with_a_promise_of_its_own(world: World) -> None:
    """The one of the run before was kept: it is not missed when the job starts again."""
    job_id = await world.ran(retries={"max": 1})
    await world.sql(
        "INSERT INTO start_promises (reservation_id, promised_start_at, made_at) VALUES (:id, :at, :at)",
        id=job_id, at=world.clock.now(),
    )  # fmt: skip
    await end(world, job_id, 1, attempt=1)
    await start(world, job_id, attempt=2)
    assert (await world.view(job_id)).promised_start_at is None
    assert "start_promise_missed" not in await world.kinds(job_id)


async def test_a_retry_is_cancelled_like_any_waiting_job(world: World) -> None:
    job_id = await world.ran(retries={"max": 1})
    await end(world, job_id, 1, attempt=1)
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())
    assert (await world.row(job_id)).status is JobStatus.CANCELLED


@pytest.mark.parametrize(
    "change",
    ["retried = 2", "retried = -1", "retry_max = NULL", "retry_on = NULL", "retry_on = '{}'", "retry_on = '{ended}'"],
)
async def test_the_database_keeps_the_terms(world: World, change: str) -> None:
    job_id = await world.submitted(retries={"max": 1})
    with pytest.raises(IntegrityError):
        await world.sql(f"UPDATE reservations SET {change} WHERE id = :id", id=job_id)
