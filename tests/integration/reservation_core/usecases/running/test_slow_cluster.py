"""A cluster that answers late or never: no transaction waits for it, no pod comes to be behind anybody's back."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.model import PodName, PodPhase, PodSpec, PodStatus, Reason
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError, PodListing
from reservation_core.ports.queues import MessageNotDueError
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.running.create_pods_together import create_together
from reservation_core.usecases.running.expire_jobs import ExpiryRules, expire
from reservation_core.usecases.running.observe import UnobservedPodsError
from reservation_core.usecases.running.perform_pod_operations import perform
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LAUNCH, World, pod
from tests.waiting import PATIENCE_S, eventually

LATE = timedelta(seconds=60)
RULES = replace(
    LAUNCH,
    late=LATE,
    slow_after=timedelta(milliseconds=20),
    lock_patience=timedelta(milliseconds=20),
)
EXPIRY = ExpiryRules((300,), ALLOWANCE, 3, timedelta(minutes=1))
_BUSY = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""


async def told(world: World, op: str, job_id: str, attempt: int = 1) -> None:
    operation = PodOperation.model_validate({"op": op, "id": job_id, "attempt": attempt})
    await perform(world.uow, world.cluster, operation, world.clock, RULES)


async def cancelled(world: World, job_id: str) -> None:
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())


async def unsettled(world: World, job_id: str) -> datetime | None:
    return (await world.row(job_id)).unsettled_until


async def none_is_open(world: World) -> bool:
    async with world.uow(one_statement=True) as uow:
        return not (await sql(uow, _BUSY)).scalar_one()


class Door:
    """Where creates wait until it is opened."""

    def __init__(self, world: World) -> None:
        self.waiting: list[PodSpec] = []
        self.open = asyncio.Event()
        world.cluster.on_create = self._pass

    async def _pass(self, spec: PodSpec) -> None:
        self.waiting.append(spec)
        await self.open.wait()


@asynccontextmanager
async def being_made(world: World, *jobs: str) -> AsyncIterator[Door]:
    """The pods of these are being created while the block runs; the creates end with it."""
    door = Door(world)
    if len(jobs) == 1:
        task = asyncio.create_task(told(world, "create", jobs[0]))
    else:
        asked = [PodOperation(op="create", id=job, attempt=1) for job in jobs]
        task = asyncio.create_task(create_together(world.uow, world.cluster, asked, world.clock, RULES))  # type: ignore[arg-type]
    await eventually(lambda: len(door.waiting) == len(jobs))
    try:
        yield door
    finally:
        door.open.set()
        await task


@pytest.fixture
async def starting(world: World) -> list[str]:
    """Two jobs that have been given a card each, and no pod yet."""
    jobs = [await world.submitted() for _ in range(2)]
    await world.plan()
    return jobs


@pytest.mark.parametrize("count", [1, 2])
async def test_no_transaction_is_open_while_pods_are_made(world: World, starting: list[str], count: int) -> None:
    async with being_made(world, *starting[:count]):
        await eventually(lambda: none_is_open(world))


@pytest.mark.parametrize("count", [1, 2])
async def test_a_cancel_is_answered_while_a_create_hangs_and_the_delete_comes_after_it(
    world: World, starting: list[str], count: int
) -> None:
    job_id = starting[0]
    async with being_made(world, *starting[:count]):
        async with asyncio.timeout(PATIENCE_S):
            await cancelled(world, job_id)
        with pytest.raises(MessageNotDueError):
            await told(world, "delete", job_id)
        assert all(card.held for card in await world.cards(job_id))
    assert pod(job_id) in world.cluster.pods
    await told(world, "delete", job_id)
    assert pod(job_id) not in world.cluster.pods
    assert (await world.row(job_id)).status is JobStatus.CANCELLED


@pytest.mark.parametrize("count", [1, 2])
async def test_what_was_asked_for_and_not_answered_is_waited_for(world: World, starting: list[str], count: int) -> None:
    """The API server was slow, or the network: the pod comes to be long after its create was given up."""
    job_id, former = starting[0], world.clock.now()
    world.cluster.down = True
    if count == 1:
        with pytest.raises(ClusterUnavailableError):
            await told(world, "create", job_id)
    else:
        asked = [PodOperation(op="create", id=job, attempt=1) for job in starting]
        assert await create_together(world.uow, world.cluster, asked, world.clock, RULES) == set()
    world.cluster.down = False
    assert await unsettled(world, job_id) == former + LATE
    await cancelled(world, job_id)
    for _ in range(2):
        with pytest.raises(MessageNotDueError) as not_yet:
            await told(world, "delete", job_id)
        assert not_yet.value.after == RULES.unsettled_pause
    await world.see(world.cluster.show(pod(job_id), PodPhase.GONE))
    assert all(card.held for card in await world.cards(job_id)), "nobody gets them while its pod may come to be"
    world.cluster.show(pod(job_id), PodPhase.RUNNING)
    world.clock.go_on(LATE)
    await told(world, "delete", job_id)
    assert world.cluster.deleted == [str(pod(job_id))]
    assert (await world.row(job_id)).status is JobStatus.CANCELLED
    assert not any(card.held for card in await world.cards(job_id))


async def test_what_is_asked_for_for_long_is_written_down_while_it_is(world: World, starting: list[str]) -> None:
    """So that whoever takes over from a process that died in the middle of it waits as well."""
    job_id = starting[0]
    async with being_made(world, job_id):

        async def noted() -> bool:
            return await unsettled(world, job_id) is not None

        await eventually(noted)
    assert await unsettled(world, job_id) is None


async def test_an_answer_settles_nothing_that_was_asked_before(world: World, starting: list[str]) -> None:
    job_id = starting[0]
    world.cluster.down = True
    with pytest.raises(ClusterUnavailableError):
        await told(world, "create", job_id)
    world.cluster.down = False
    before = await unsettled(world, job_id)
    world.clock.go_on(timedelta(seconds=1))
    async with being_made(world, job_id):

        async def noted() -> bool:
            return await unsettled(world, job_id) != before

        await eventually(noted)
    assert await unsettled(world, job_id) == before


async def test_what_was_answered_at_once_is_not_written_down(world: World, starting: list[str]) -> None:
    before = await world.row(starting[0])
    await told(world, "create", starting[0])
    assert await world.row(starting[0]) == before


@pytest.mark.parametrize("count", [1, 2])
async def test_an_earlier_try_that_was_not_answered_may_come_after_the_one_that_was(
    world: World, starting: list[str], count: int
) -> None:
    job_id = starting[0]
    world.cluster.loses_answers = True
    if count == 1:
        await told(world, "create", job_id)
    else:
        asked = [PodOperation(op="create", id=job, attempt=1) for job in starting]
        assert await create_together(world.uow, world.cluster, asked, world.clock, RULES) == set(starting)
    assert await unsettled(world, job_id) == world.clock.now() + LATE
    await world.see(world.cluster.show(pod(job_id), PodPhase.FINISHED, started_at=world.clock.now(), exit_code=0))
    with pytest.raises(MessageNotDueError):
        await told(world, "delete", job_id)
    assert world.cluster.deleted == [], "as long as it is there, nothing else can run under its name"
    assert all(card.held for card in await world.cards(job_id))
    world.clock.go_on(LATE)
    await told(world, "delete", job_id)
    assert world.cluster.deleted == [str(pod(job_id))]
    assert (await world.row(job_id)).status is JobStatus.SUCCEEDED


async def test_what_comes_after_its_end_was_decided_is_ended_at_once(world: World, starting: list[str]) -> None:
    job_id = starting[0]
    world.cluster.loses_answers = True
    await told(world, "create", job_id)
    await cancelled(world, job_id)
    for times in (1, 2):
        world.cluster.show(pod(job_id), PodPhase.RUNNING)
        with pytest.raises(MessageNotDueError) as not_yet:
            await told(world, "delete", job_id)
        assert not_yet.value.after == RULES.unsettled_pause
        assert world.cluster.deleted == world.cluster.kept == [str(pod(job_id))] * times
    assert all(card.held for card in await world.cards(job_id))
    world.cluster.show(pod(job_id), PodPhase.RUNNING)
    world.clock.go_on(LATE)
    await told(world, "delete", job_id)
    assert world.cluster.kept == [str(pod(job_id))] * 2, "its name is let go when nothing can come any more"
    assert (await world.row(job_id)).status is JobStatus.CANCELLED


async def test_what_comes_after_its_end_was_decided_is_ended_when_it_is_seen(world: World, starting: list[str]) -> None:
    """And not only when its delete is tried again."""
    answered, job_id = starting
    await told(world, "create", answered)
    world.cluster.loses_answers = True
    await told(world, "create", job_id)
    for listed_job_id in starting:
        await cancelled(world, listed_job_id)
    said = await world.depth("pod_operations")
    await world.see(world.cluster.show(pod(answered), PodPhase.RUNNING))
    assert await world.depth("pod_operations") == said, "a pod that came in time was told by the first delete"
    await world.see(world.cluster.show(pod(job_id), PodPhase.RUNNING))
    assert await world.depth("pod_operations") == said + 1
    leaving = Reason(ReasonCode.POD_DELETED, "Somebody did.")
    await world.see(world.cluster.show(pod(job_id), PodPhase.RUNNING, reason=leaving))
    assert await world.depth("pod_operations") == said + 1
    assert (await world.row(job_id)).outcome is JobStatus.CANCELLED


async def test_a_refusal_is_an_answer(world: World, starting: list[str]) -> None:
    job_id = starting[0]
    world.cluster.refusal = (await world.row(job_id)).reason
    await told(world, "create", job_id)
    await told(world, "delete", job_id)
    assert (await world.row(job_id)).status is JobStatus.FAILED


async def test_a_create_that_is_stopped_in_its_middle_was_not_answered(world: World, starting: list[str]) -> None:
    door = Door(world)
    task = asyncio.create_task(told(world, "create", starting[0]))
    await eventually(lambda: door.waiting)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await unsettled(world, starting[0]) is not None


class SlowLook:
    """A cluster whose looks and lists wait until they are let go."""

    def __init__(self, world: World) -> None:
        self.looking = asyncio.Event()
        self.open = asyncio.Event()
        self._find, self._list = world.cluster.find_pods, world.cluster.list_pods
        world.cluster.find_pods = self._find_late  # type: ignore[method-assign]
        world.cluster.list_pods = self._list_late  # type: ignore[method-assign]

    async def _find_late(self, reservation_id: str, named: Collection[PodName] = ()) -> list[PodStatus]:
        found = await self._find(reservation_id, named)
        await self._wait()
        return found

    async def _list_late(self, *, foreign: bool = False) -> PodListing:
        found = await self._list(foreign=foreign)
        await self._wait()
        return found

    async def _wait(self) -> None:
        self.looking.set()
        await self.open.wait()


async def test_no_row_is_locked_while_the_cluster_is_asked_about_it(world: World) -> None:
    job_id, other = await world.ran(), await world.started()
    gone = world.cluster.show(pod(job_id), PodPhase.GONE)
    runs = world.cluster.show(pod(other), PodPhase.RUNNING, started_at=world.clock.now())
    slow = SlowLook(world)
    seeing = asyncio.create_task(world.see(gone, runs))
    await slow.looking.wait()
    await eventually(lambda: none_is_open(world))
    assert (await world.row(other)).status is JobStatus.RUNNING, "what needs no look does not wait for one"
    async with asyncio.timeout(PATIENCE_S):
        await cancelled(world, job_id)
    slow.open.set()
    assert await seeing == [gone], "the row is not as it was: look again"
    assert await world.see(gone) == []
    assert (await world.row(job_id)).status is JobStatus.CANCELLED


async def test_a_gang_that_was_looked_at_before_its_cancel_does_not_run_after_it(world: World) -> None:
    job_id = await world.started(nodes=2)
    seen = [world.cluster.show(pod(job_id, rank), PodPhase.RUNNING, started_at=world.clock.now()) for rank in range(2)]
    slow = SlowLook(world)
    seeing = asyncio.create_task(world.see(*seen))
    await slow.looking.wait()
    await cancelled(world, job_id)
    slow.open.set()
    assert await seeing == seen
    assert (await world.row(job_id)).status is JobStatus.ENDING


async def test_a_pod_that_is_made_while_another_is_looked_for_is_not_overlooked(world: World) -> None:
    """A create can't come between the look and the end that is concluded from it: it waits for the pod lock."""
    job_id = await world.started()
    await cancelled(world, job_id)
    gone = world.cluster.show(pod(job_id), PodPhase.GONE)
    slow = SlowLook(world)
    seeing = asyncio.create_task(world.see(gone))
    await slow.looking.wait()
    with pytest.raises(MessageNotDueError):
        await told(world, "create", job_id)
    slow.open.set()
    assert await seeing == []
    assert (await world.row(job_id)).status is JobStatus.CANCELLED


async def test_what_could_not_be_looked_at_is_told_and_the_rest_is_applied(world: World) -> None:
    lost, other = await world.ran(), await world.started()
    gone = world.cluster.show(pod(lost), PodPhase.GONE)
    runs = world.cluster.show(pod(other), PodPhase.RUNNING, started_at=world.clock.now())
    world.cluster.down = True
    with pytest.raises(UnobservedPodsError) as not_looked_at:
        await world.see(gone, runs)
    assert not_looked_at.value.statuses == [gone]
    assert (await world.row(other)).status is JobStatus.RUNNING
    assert (await world.row(lost)).status is JobStatus.RUNNING
    world.cluster.down = False
    await world.see(*not_looked_at.value.statuses)
    assert (await world.row(lost)).status is JobStatus.ENDING


async def test_no_transaction_is_open_while_late_starts_are_looked_at(world: World) -> None:
    job_id = await world.started()
    world.clock.go_on(10 * ALLOWANCE)
    slow = SlowLook(world)
    expiring = asyncio.create_task(expire(world.uow, world.cluster, world.clock, EXPIRY))
    await slow.looking.wait()
    await eventually(lambda: none_is_open(world))
    slow.looking.clear()
    async with asyncio.timeout(PATIENCE_S):
        await cancelled(world, job_id)
    slow.open.set()
    assert (await expiring).timed_out == 0, "it was cancelled meanwhile"
    assert (await world.row(job_id)).outcome is JobStatus.CANCELLED
