"""Secrets reach a job's pods with the values that they have at its start, and nothing else of the job."""

import pytest

from reservation_core.adapters.postgres.sealing import Sealing
from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.model import PodPhase, PodSecret
from reservation_core.domain.sessions.secret_uses import SecretUse
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.queues import MessageNotDueError
from reservation_core.usecases.people.user_secrets import delete_secret, set_secret
from reservation_core.usecases.running.create_pods_together import create_together
from reservation_core.usecases.running.perform_pod_operations import perform
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import LAUNCH, World, pod

USES = [{"name": "a", "env": "A"}, {"name": "b", "path": "/run/b"}]


async def put(world: World, name: str, value: str) -> None:
    async with world.uow() as uow:
        await set_secret(uow, world.who, name, value, world.clock.now())


def create(job_id: str) -> PodOperation:
    return PodOperation(op="create", id=job_id, attempt=1)


@pytest.fixture
async def job(world: World) -> str:
    """A job of two nodes with two secrets, whose pods are to be made."""
    await put(world, "a", "first")
    await put(world, "b", "second")
    job_id = await world.submitted(nodes=2, secrets=USES)
    await world.plan()
    return job_id


async def test_every_pod_gets_the_values_of_its_start(world: World, job: str) -> None:
    await put(world, "a", "newer")
    await perform(world.uow, world.cluster, create(job), world.clock, LAUNCH)
    wanted = (PodSecret(SecretUse("a", env="A"), "newer"), PodSecret(SecretUse("b", path="/run/b"), "second"))
    assert [spec.secrets for spec in world.cluster.created] == [wanted, wanted]
    assert all("newer" not in repr(spec) for spec in world.cluster.created)
    async with world.uow() as uow:
        stored = (await sql(uow, "SELECT workload::text FROM reservations")).scalar_one()
    assert "newer" not in stored


async def test_jobs_with_secrets_are_not_made_in_a_batch_which_reads_none(world: World) -> None:
    await put(world, "a", "first")
    jobs = [await world.submitted(secrets=USES[:1]), await world.submitted(), await world.submitted()]
    await world.plan()
    done = await create_together(world.uow, world.cluster, [create(job) for job in jobs], world.clock, LAUNCH)
    assert done == set(jobs[1:])


async def test_a_secret_that_was_deleted_fails_the_job_by_name(world: World, job: str) -> None:
    async with world.uow() as uow:
        await delete_secret(uow, world.who, "b", world.clock.now())
    await perform(world.uow, world.cluster, create(job), world.clock, LAUNCH)
    await world.operate()
    row = await world.row(job)
    assert (row.status, row.reason.code) == (JobStatus.FAILED, ReasonCode.START_FAILED)
    assert "The secret b was deleted before the job started." in row.reason.detail
    assert world.cluster.created == []
    assert not any(card.held for card in await world.cards(job))


async def test_a_secret_that_was_deleted_between_two_attempts_is_not_said_to_be_missed_by_the_first(
    world: World,
) -> None:
    await put(world, "a", "first")
    job_id = await world.ran(secrets=USES[:1], retries={"max": 1, "on": ["failed"]})
    async with world.uow() as uow:
        await delete_secret(uow, world.who, "a", world.clock.now())
    await world.see(world.cluster.show(pod(job_id), PodPhase.FINISHED, exit_code=1))
    await world.operate()
    await world.plan()
    await world.operate()
    row = await world.row(job_id)
    assert (row.status, row.attempt) == (JobStatus.FAILED, 2)
    assert "The secret a was deleted before attempt 2 of the job started." in row.reason.detail


async def test_a_secret_without_its_key_delays_the_start(
    world: World, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.uow, "_sealing", Sealing((), [b"x" * 32]))
    with pytest.raises(MessageNotDueError, match="GPU_DEV_SECRETS_KEY_FILE"):
        await perform(world.uow, world.cluster, create(job), world.clock, LAUNCH)
    row = await world.row(job)
    assert (row.status, world.cluster.created) == (JobStatus.STARTING, [])
    assert "The secret " in row.reason.detail
    monkeypatch.undo()
    await perform(world.uow, world.cluster, create(job), world.clock, LAUNCH)
    assert len(world.cluster.created) == 2
