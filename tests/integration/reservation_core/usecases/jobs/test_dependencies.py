"""Jobs that wait for others: they are planned after them, end when that can't be, and no end is missed."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.adapters.postgres.jobs.dependencies import Dependencies
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.errors import UnknownJobError
from reservation_core.domain.jobs.asked_dependencies import Dependency, DependencyWhen
from reservation_core.domain.model import PodPhase
from reservation_core.domain.plan import Need, PlannedSlot
from reservation_core.domain.planning.planning_picture import Picture
from reservation_core.domain.planning.start_decisions import plan_starts
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.jobs.reservations import NewReservation
from reservation_core.usecases.jobs import dependencies
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.dependencies import known_dependencies, settle_dependants, submit_dependent
from reservation_core.usecases.jobs.submit import prepare
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LONGEST, World, pod
from tests.waiting import eventually

SUCCEEDED, ENDED, FAILED, STARTED = DependencyWhen
DAY = timedelta(days=1)
WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted"


async def asked(world: World, after: dict[str, DependencyWhen], **fields: object) -> NewReservation:
    """A job that waits for others, before it is stored."""
    body = JobSubmit.model_validate({"gpus": 1, "duration": 3600, "workload": {"command": ["true"]}, **fields})
    async with world.uow() as uow:
        known = await known_dependencies(uow, world.who, [Dependency(job, when) for job, when in after.items()])
    return prepare(body, world.who, ids=RandomIds(), longest=LONGEST, now=world.clock.now(), after=known)


async def dependent(world: World, after: dict[str, DependencyWhen], **fields: object) -> str:
    """The id of a stored job that waits for others."""
    new = await asked(world, after, **fields)
    answer = await submit_dependent(world.uow, world.who, new, world.clock.now())
    assert answer.is_stored
    return answer.reservation_id


async def settle_all(world: World) -> int:
    """Look until there are no news; answers how often there were some."""
    looks = 0
    while await settle_dependants(world.uow, world.clock):
        looks += 1
    return looks


async def end(world: World, job_id: str, exit_code: int = 0) -> None:
    """A running job ends."""
    await world.see(
        world.cluster.show(
            pod(job_id), PodPhase.FINISHED, started_at=world.clock.now(), finished_at=world.clock.now(),
            exit_code=exit_code,
        )
    )  # fmt: skip
    await world.operate()
    await world.see(world.cluster.show(pod(job_id), PodPhase.GONE))
    assert (await world.row(job_id)).finished_at is not None


async def cancelled(world: World, job_id: str) -> None:
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())


async def test_a_job_that_has_started_once_has_started_though_it_is_retried(world: World) -> None:
    first = await world.ran(retries={"max": 1})
    second = await dependent(world, {first: STARTED})
    await world.see(world.cluster.show(pod(first), PodPhase.FINISHED, exit_code=1))
    await world.operate()
    assert (await world.row(first)).started_at is None
    await settle_all(world)
    assert (await world.row(second)).held is False


async def test_a_job_is_planned_after_the_one_that_it_waits_for(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    await settle_all(world)
    await world.plan(slots=True)
    view = await world.view(second)
    assert (view.reservation.status, view.reservation.held, view.queue_position) == (JobStatus.QUEUED, True, None)
    end_of_first = world.clock.now() + timedelta(hours=1)
    assert (view.estimated_start_at, view.promised_start_at) == (end_of_first, end_of_first)
    assert view.reservation.reason.code is ReasonCode.WAITING_FOR_JOBS
    assert first in view.reservation.reason.detail
    await end(world, first)
    await settle_all(world)
    await world.plan()
    row = await world.row(second)
    assert (row.status, row.held) == (JobStatus.STARTING, False)
    assert await world.kinds(second) == ["submitted", "dependencies_met", "allocated"]
    assert [needed.state for needed in (await world.view(second)).after] == ["met"]


async def test_the_planners_queue_has_no_held_job(world: World) -> None:
    first = await world.submitted()
    second = await dependent(world, {first: SUCCEEDED})
    async with world.uow() as uow:
        seen = await uow.planning.snapshot(10, ALLOWANCE)
        changed, _ = await uow.planning.changed([first, second], ALLOWANCE)
        news = await uow.planning.news(10, ALLOWANCE)
        more = await uow.planning.more_waiting(None, None, 10, ALLOWANCE)
    assert [[job.id for job in jobs if job.needs is None] for jobs in (seen.waiting, changed, more)] == [[first]] * 3
    assert news.waiting == changed
    assert [job.id for job in (*seen.dependants, *changed) if job.needs == (Need(first, by_start=False),)] == [
        second
    ] * 2


async def test_a_job_may_wait_for_a_start(world: World) -> None:
    first = await world.started()
    second = await dependent(world, {first: STARTED})
    await settle_all(world)
    assert (await world.row(second)).held
    await world.see(world.cluster.show(pod(first), PodPhase.RUNNING, started_at=world.clock.now()))
    await settle_all(world)
    assert (await world.row(second)).held is False
    await end(world, first, exit_code=1)
    await settle_all(world)
    assert (await world.row(second)).status is JobStatus.QUEUED


@pytest.mark.parametrize(("when", "exit_code"), [(SUCCEEDED, 1), (FAILED, 0)])
async def test_a_job_that_can_never_start_ends_with_all_behind_it(
    world: World, when: DependencyWhen, exit_code: int
) -> None:
    first = await world.ran()
    second = await dependent(world, {first: when})
    third = await dependent(world, {second: SUCCEEDED})
    after_all = await dependent(world, {second: ENDED, third: FAILED})
    await end(world, first, exit_code)
    await settle_all(world)
    for job_id, needed in ((second, first), (third, second)):
        row = await world.row(job_id)
        assert (row.status, row.reason.code) == (JobStatus.CANCELLED, ReasonCode.DEPENDENCY_FAILED)
        assert (row.finished_at, row.attempt) == (world.clock.now(), 0)
        assert needed in row.reason.detail
        assert await world.kinds(job_id) == ["submitted", "cancelled"]
    assert (await world.row(after_all)).held is False


async def test_a_job_that_is_over_already_counts(world: World) -> None:
    first = await world.submitted()
    await cancelled(world, first)
    second, third = [await dependent(world, {first: when}) for when in (ENDED, SUCCEEDED)]
    await settle_all(world)
    assert (await world.row(second)).held is False
    assert (await world.row(third)).reason.code is ReasonCode.DEPENDENCY_FAILED


async def test_a_held_job_is_cancelled_at_once(world: World) -> None:
    first = await world.ran()
    second = await dependent(world, {first: SUCCEEDED})
    third = await dependent(world, {second: SUCCEEDED})
    await cancelled(world, second)
    await settle_all(world)
    assert (await world.row(second)).reason.code is ReasonCode.CANCELLED_BY_USER
    assert (await world.row(third)).reason.code is ReasonCode.DEPENDENCY_FAILED
    await end(world, first)
    await settle_all(world)
    assert (await world.row(second)).status is JobStatus.CANCELLED
    assert await settle_dependants(world.uow, world.clock) == 0


async def test_an_end_that_is_not_committed_yet_is_not_missed(world: World) -> None:
    """The leader looks while the end is written, before it has looked at the new job for the first time."""
    first = await world.submitted()
    second = await dependent(world, {first: ENDED})
    async with world.uow() as uow:
        await cancel(uow, world.who, first, None, world.clock.now())
        await settle_dependants(world.uow, world.clock)
        assert (await world.row(second)).held
    await settle_all(world)
    assert (await world.row(second)).held is False


async def test_an_end_between_the_two_reads_is_not_missed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end between the two statements of one look is seen by the second one, or stays as news."""
    first = await world.submitted()
    second = await dependent(world, {first: ENDED})
    steps = []

    def interrupted(name: str) -> None:
        real = getattr(Dependencies, name)

        async def step(self: Dependencies, ids: Sequence[str]) -> object:
            answer = await real(self, ids)
            steps.append(name)
            if len(steps) == 1:
                ending = asyncio.create_task(cancelled(world, first))
                later.append(ending)

                async def over_or_blocked() -> bool:
                    return ending.done() or bool((await world.sql(WAITS)).scalar_one())

                await eventually(over_or_blocked)
            return answer

        monkeypatch.setattr(Dependencies, name, step)

    later: list[asyncio.Task[None]] = []
    for name in ("take_news", "of"):
        interrupted(name)
    await settle_dependants(world.uow, world.clock)
    for ending in later:
        await ending
    monkeypatch.undo()
    await settle_all(world)
    assert (await world.row(second)).held is False


async def test_a_job_that_comes_while_the_other_ends_waits_for_that(world: World) -> None:
    first = await world.submitted()
    new = await asked(world, {first: ENDED})
    async with world.uow() as uow:
        await cancel(uow, world.who, first, None, world.clock.now())
        storing = asyncio.create_task(submit_dependent(world.uow, world.who, new, world.clock.now()))

        async def blocked() -> bool:
            return bool((await world.sql(WAITS)).scalar_one())

        await eventually(blocked)
    assert (await storing).is_stored
    await settle_all(world)
    assert (await world.row(new.reservation.id)).held is False


async def test_an_end_waits_for_a_job_that_comes(world: World) -> None:
    first = await world.submitted()
    new = await asked(world, {first: ENDED})
    async with world.uow() as uow:
        await uow.dependencies.keep([first], world.who.user_id)
        await uow.reservations.submit([new], world.clock.now())
        ending = asyncio.create_task(cancelled(world, first))

        async def blocked() -> bool:
            return bool((await world.sql(WAITS)).scalar_one())

        await eventually(blocked)
        await uow.dependencies.add(new.reservation.id, new.after)
    await ending
    await settle_all(world)
    assert (await world.row(new.reservation.id)).held is False


async def test_news_outlive_a_look_that_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await world.submitted()
    second = await dependent(world, {first: ENDED})
    await cancelled(world, first)

    async def fail(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken, suppress(RuntimeError):
        broken.setattr(dependencies, "carry_out", fail)
        await settle_dependants(world.uow, world.clock)
    assert (await world.row(second)).held
    await settle_all(world)
    assert (await world.row(second)).held is False


async def test_the_database_starts_no_held_job(world: World) -> None:
    second = await dependent(world, {await world.submitted(): ENDED})
    for change in ("status = 'starting', attempt = 1", "status = 'succeeded', finished_at = now()"):
        with pytest.raises(IntegrityError, match="reservations_held_check"):
            await world.sql(f"UPDATE reservations SET {change} WHERE id = :id", id=second)


async def test_a_plan_from_before_gives_a_held_job_nothing(world: World) -> None:
    """A planner's picture may be older than the row: neither GPUs nor a slot come from it."""
    job_id = await world.submitted()
    now = world.clock.now()
    async with world.uow() as uow:
        assert await uow.planning.acquire("test", timedelta(hours=1)) == 1
        seen = await uow.planning.snapshot(10, ALLOWANCE)
    [start] = [replace(start, version=None) for start in plan_starts(Picture(seen), now, 10)]
    slot = PlannedSlot(job_id, start.start, start.end, start.gpus, promised_at=start.start)
    await world.sql("UPDATE reservations SET held = true WHERE id = :id", id=job_id)
    async with world.uow() as uow:
        assert await uow.planning.commit_slots(1, [slot], now) == frozenset()
        assert (await uow.planning.commit(1, [start], now)).started == frozenset()
    assert (await world.row(job_id)).status is JobStatus.QUEUED


async def test_the_database_knows_no_circles(world: World) -> None:
    first = await world.submitted()
    second = await dependent(world, {first: ENDED})
    add = "INSERT INTO job_dependencies (job_id, needs_id, condition, place) VALUES (:job, :needs, 'ended', 0)"
    for job, needs in ((first, second), (first, first)):
        with pytest.raises(IntegrityError, match="submitted before it"):
            await world.sql(add, job=job, needs=needs)
    with pytest.raises(IntegrityError, match="submitted before it"):
        await world.sql("UPDATE job_dependencies SET needs_id = job_id")


async def test_jobs_of_others_are_as_unknown_as_jobs_that_never_were(world: World) -> None:
    mine = await world.submitted()
    await world.sql("INSERT INTO users (name, role, created_at) VALUES ('eve', 'user', now())")
    theirs = await world.submitted()
    give = "UPDATE reservations SET user_id = (SELECT id FROM users WHERE name = 'eve') WHERE id = :id"
    await world.sql(give, id=theirs)
    for unknown in (theirs, "job-nope"):
        with pytest.raises(UnknownJobError, match=unknown) as refused:
            await asked(world, {mine: ENDED, unknown: ENDED})
        assert [rule.detail for rule in refused.value.broken_rules] == [f"after.1.job: you have no job {unknown}"]
    async with world.uow() as uow:
        assert await uow.dependencies.keep([mine, theirs, "job-nope"], world.who.user_id) == {mine}
        assert await uow.dependencies.keep([theirs], None) == {theirs}


async def test_a_thousand_jobs_in_layers(world: World) -> None:
    """Each waits for two of the layer before; the first one fails, and all of them end for it."""
    first = await world.ran(name="root")
    layers = [[first]]
    for width in (9, 90, 900):
        layer = []
        for number in range(width):
            before = layers[-1]
            needs = {before[(number + 1) % len(before)]: ENDED, before[number % len(before)]: SUCCEEDED}
            layer.append(await dependent(world, needs))
        layers.append(layer)
    await settle_all(world)
    await world.plan(slots=True)
    assert (await world.sql("SELECT count(*) FROM reservations WHERE held AND status = 'queued'")).scalar_one() == 999
    await end(world, first, exit_code=1)
    await settle_all(world)
    left = await world.sql("SELECT status, reason_code, count(*) FROM reservations GROUP BY 1, 2 ORDER BY 1")
    assert [tuple(row) for row in left] == [
        ("cancelled", "dependency_failed", 999), ("failed", "command_failed", 1),
    ]  # fmt: skip


async def test_an_old_job_is_kept_until_its_end_is_known(world: World) -> None:
    first = await world.submitted()
    second = await dependent(world, {first: ENDED})
    await cancelled(world, first)

    async def remove() -> int:
        async with world.uow() as uow:
            return (await uow.retention.remove_reservations(world.clock.now() + DAY, None, 10)).count

    assert await remove() == 0
    await settle_all(world)
    assert await remove() == 1
    view = await world.view(second)
    assert (view.reservation.held, view.after) == (False, ())
