"""A small job starts over a slot that was promised with slack, on a real database."""

from dataclasses import replace
from datetime import timedelta

from reservation_core.domain.statuses import JobStatus
from tests.integration.reservation_core.usecases.planning.test_slots import HOUR, WHOLE, plan, slot
from tests.integration.reservation_core.usecases.world import ALLOWANCE, World


async def test_a_slot_makes_room_up_to_its_promise_and_no_further(world: World) -> None:
    world.rules = replace(world.rules, slack=3 * HOUR)
    await world.ran(gpus=2, nodes=1)
    now = world.clock.now()
    wide = await world.submitted(**WHOLE)
    await plan(world)
    assert await slot(world, wide) == (now + HOUR, now + 2 * HOUR + ALLOWANCE, 4)
    assert (await world.view(wide)).promised_start_at == now + 4 * HOUR
    small = await world.submitted(gpus=1, duration=3 * 3600)
    # Another planner reads the promise from the database.
    await plan(world)
    assert (await world.row(small)).status is JobStatus.STARTING
    moved = now + 3 * HOUR + ALLOWANCE
    assert await slot(world, wide) == (moved, moved + HOUR + ALLOWANCE, 4)
    late = await world.submitted(gpus=1, duration=4 * 3600)
    await plan(world)
    assert (await world.row(late)).status is JobStatus.QUEUED
    assert await slot(world, wide) == (moved, moved + HOUR + ALLOWANCE, 4)
    view = await world.view(wide)
    assert view.promised_start_at == now + 4 * HOUR
    missed = await world.sql("SELECT count(*) AS missed FROM events WHERE kind = 'start_promise_missed'")
    assert missed.scalar_one() == 0


async def test_without_slack_nothing_is_moved_beyond_its_slot(world: World) -> None:
    await world.ran(gpus=2, nodes=1)
    now = world.clock.now()
    wide = await world.submitted(**WHOLE)
    await plan(world)
    small = await world.submitted(gpus=1, duration=timedelta(hours=3).total_seconds())
    await plan(world)
    assert (await world.row(small)).status is JobStatus.QUEUED
    assert await slot(world, wide) == (now + HOUR, now + 2 * HOUR + ALLOWANCE, 4)
