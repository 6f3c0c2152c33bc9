"""Slots that can't be written, and those that follow them."""

from datetime import timedelta

import pytest

from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.policy.nouns import Scope
from reservation_core.usecases.planning.planner import Planner
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.booking_world import BookingWorld
from tests.integration.reservation_core.usecases.jobs.test_dependencies import dependent
from tests.integration.reservation_core.usecases.planning.chains.test_chain_slots import begins, ends, settled
from tests.integration.reservation_core.usecases.planning.quotas.quota_world import rule
from tests.integration.reservation_core.usecases.world import World

SUCCEEDED = DependencyWhen.SUCCEEDED


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As many as there were pictures that had to be read anew."""
    found: list[int] = []
    read_anew = Planner.read_anew

    def count(planner: Planner) -> None:
        found.append(1)
        read_anew(planner)

    monkeypatch.setattr(Planner, "read_anew", count)
    return found


async def test_a_locked_job_keeps_slots_from_those_alone_that_follow_it(world: World, anew: list[int]) -> None:
    await world.ran(gpus=2, nodes=2)
    first = await world.submitted(gpus=2)
    second = await dependent(world, {first: SUCCEEDED}, gpus=2)
    third = await dependent(world, {second: SUCCEEDED}, gpus=2)
    others = [await world.submitted(gpus=2, nodes=2) for _ in range(2)]
    planner = await world.planner()
    async with world.uow() as uow:
        await sql(uow, "SELECT id FROM reservations WHERE id = :id FOR UPDATE", id=first)
        for _ in range(3):
            world.clock.go_on(timedelta(seconds=1))
            await settled(planner)
    assert not anew
    assert [await begins(world, job) is not None for job in (first, second, third, *others)] == [False] * 3 + [True] * 2
    await settled(planner)
    await settled(planner)
    assert not anew
    assert await begins(world, second) >= await ends(world, first)
    assert await begins(world, third) >= await ends(world, second)


async def test_a_quota_keeps_slots_from_those_alone_that_follow_the_refused_job(
    bookings: BookingWorld, anew: list[int]
) -> None:
    """The quota becomes smaller after the planner has read it, so that it refuses a slot as that is written."""
    world = bookings.world
    alice = world.who
    world.who, _ = await bookings.person("bob"), alice
    await world.ran(gpus=2, nodes=2)
    other = await world.submitted(gpus=2, nodes=2)
    world.who = alice
    await rule(world, Scope(user="alice"), max_gpus=3)
    first = await world.submitted(gpus=2)
    second = await dependent(world, {first: SUCCEEDED})
    planner = await world.planner()
    await planner.cycle()
    await rule(world, Scope(user="alice"), max_gpus=1)
    await planner.give_slots()
    assert not anew
    assert [await begins(world, job) is not None for job in (first, second, other)] == [False, False, True]
    await rule(world, Scope(user="alice"), max_gpus=3)
    for _ in range(2):
        world.clock.go_on(timedelta(seconds=5))
        await settled(planner)
    assert not anew
    assert await begins(world, second) >= await ends(world, first)
