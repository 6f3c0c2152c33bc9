"""Pods of many reservations made in one transaction: only what is plain, and only under their locks."""

from datetime import timedelta

import pytest

from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.model import Reason
from reservation_core.domain.statuses import ReasonCode
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.running.create_pods_together import create_together
from tests.integration.reservation_core.usecases.world import ALLOWANCE, LAUNCH, World, pod


async def together(world: World, *operations: tuple[str, str, int]) -> set[str]:
    asked = [PodOperation.model_validate({"op": op, "id": job, "attempt": attempt}) for op, job, attempt in operations]
    return await create_together(world.uow, world.cluster, asked, world.clock, LAUNCH)


def creates(*jobs: str) -> list[tuple[str, str, int]]:
    return [("create", job, 1) for job in jobs]


@pytest.fixture
async def starting(world: World) -> list[str]:
    """Three jobs that have been given a card each, and no pod yet."""
    jobs = [await world.submitted() for _ in range(3)]
    await world.plan()
    return jobs


async def test_pods_of_many_jobs_are_made_at_once(world: World, starting: list[str]) -> None:
    assert await together(world, *creates(*starting)) == set(starting)
    assert sorted(str(spec.name) for spec in world.cluster.created) == sorted(str(pod(job)) for job in starting)


async def test_pods_whose_time_is_over_are_left_to_be_looked_at(world: World, starting: list[str]) -> None:
    world.clock.go_on(ALLOWANCE + timedelta(hours=1))
    assert await together(world, *creates(*starting)) == set()
    assert world.cluster.created == []


async def test_what_is_not_plain_is_left_to_be_done_by_itself(world: World, starting: list[str]) -> None:
    first, second, ended = starting
    async with world.uow() as uow:
        await cancel(uow, world.who, ended, None, world.clock.now())
    gang = await world.submitted(nodes=2)
    await world.plan()
    operations = [*creates(first, second, ended, gang, "job-nobody"), ("delete", second, 1)]
    assert await together(world, *operations, ("create", "job-other", 7)) == {first}
    assert [spec.name for spec in world.cluster.created] == [pod(first)]


async def test_another_attempt_is_left_alone(world: World, starting: list[str]) -> None:
    assert await together(world, *(("create", job, 2) for job in starting)) == set()
    assert world.cluster.created == []


async def test_nothing_is_made_while_somebody_else_is_about_it(world: World, starting: list[str]) -> None:
    async with world.uow.hold_pods([starting[0]]):
        assert await together(world, *creates(*starting)) == set(starting[1:])


@pytest.mark.parametrize("trouble", ["refused", "down"])
async def test_what_fails_is_not_done(world: World, starting: list[str], trouble: str) -> None:
    if trouble == "refused":
        world.cluster.refusal = Reason(ReasonCode.START_FAILED, "There is no such image.")
    else:
        world.cluster.down = True
    assert await together(world, *creates(*starting)) == set()
    world.cluster.refusal, world.cluster.down = None, False
    await world.operate()
    assert {spec.name for spec in world.cluster.created} == {pod(job) for job in starting}
