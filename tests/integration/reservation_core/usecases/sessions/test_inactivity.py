"""Sessions that nobody is connected to end after their time, and no others."""

from datetime import timedelta

import pytest

from reservation_core.domain.errors import LimitExceededError
from reservation_core.domain.policy.limits import UNLIMITED, Policy, PolicyRule, Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.sessions.ways_in import Way
from reservation_core.domain.statuses import JobStatus
from reservation_core.runtime.sessions.connections import Connections
from reservation_core.usecases.running.expire_jobs import ExpiryRules, expire
from reservation_core.usecases.sessions.enter import Visitor
from tests.integration.reservation_core.usecases.world import ALLOWANCE, MAX_STARTS, World

RULES = ExpiryRules((), start_allowance=ALLOWANCE, max_starts=MAX_STARTS, ending_patience=timedelta(minutes=1))
SESSION: dict[str, object] = {"workload": {"command": []}, "duration": 7200, "inactivity": 600}
_NINE, _TWO = timedelta(minutes=9), timedelta(minutes=2)


async def _ended(world: World) -> int:
    return (await expire(world.uow, world.cluster, world.clock, RULES)).ended


async def test_it_ends_when_nobody_ever_came(world: World) -> None:
    job_id = await world.ran(**SESSION)
    world.clock.go_on(_NINE)
    assert await _ended(world) == 0
    world.clock.go_on(_TWO)
    assert await _ended(world) == 1
    row = await world.row(job_id)
    assert (row.status, row.outcome, row.reason.code.value) == (JobStatus.ENDING, JobStatus.EXPIRED, "inactive")
    assert "Nobody was connected for 10m" in row.reason.detail


async def test_it_goes_on_while_somebody_is_connected_and_then_for_its_time(world: World) -> None:
    job_id = await world.ran(**SESSION)
    connections = Connections(world.uow, world.clock, 10)
    visitor = Visitor(world.who.user_id, world.who.user, None, None)
    async with connections.enter(visitor, job_id, 0, Way.EXEC):
        for _ in range(90):
            world.clock.go_on(timedelta(seconds=20))
            await connections.refresh()
        assert await _ended(world) == 0
    world.clock.go_on(_NINE)
    assert await _ended(world) == 0
    world.clock.go_on(_TWO)
    assert await _ended(world) == 1


async def test_a_connection_of_a_process_that_was_killed_counts_until_it_was_last_seen(world: World) -> None:
    job_id = await world.ran(**SESSION)
    killed = Connections(world.uow, world.clock, 10)
    visitor = Visitor(world.who.user_id, world.who.user, None, None)
    entered = killed.enter(visitor, job_id, 0, Way.EXEC)
    await entered.__aenter__()
    world.clock.go_on(timedelta(minutes=5))
    await killed.refresh()
    world.clock.go_on(_NINE)
    await Connections(world.uow, world.clock, 10).refresh()
    assert await _ended(world) == 0
    world.clock.go_on(_TWO)
    assert await _ended(world) == 1
    await entered.__aexit__(None, None, None)


async def test_jobs_without_it_and_jobs_with_a_command_go_on(world: World) -> None:
    await world.ran(workload={"command": []}, duration=7200)
    await world.ran(duration=7200)
    world.clock.go_on(timedelta(minutes=100))
    assert await _ended(world) == 0


def test_a_job_with_a_command_can_not_have_it(world: World) -> None:
    with pytest.raises(LimitExceededError, match="Leave the inactivity out, or leave the command out"):
        world.new(inactivity=600)


@pytest.mark.parametrize(
    ("asked", "allowed", "minutes"),
    [(None, None, None), (None, 30, 30), (10, 30, 10), (60, 30, 30), (60, UNLIMITED, 60), (None, UNLIMITED, None)],
)
def test_the_policy_bounds_what_is_asked_for(
    world: World, asked: int | None, allowed: object, minutes: int | None
) -> None:
    limit = timedelta(minutes=allowed) if isinstance(allowed, int) else allowed
    policy = Policy([PolicyRule(Scope(), Rules(inactivity=limit))])  # type: ignore[arg-type]
    fields = {"workload": {"command": []}} | ({} if asked is None else {"inactivity": asked * 60})
    stored = world.new(policy=policy, **fields).reservation.inactivity
    assert stored == (None if minutes is None else timedelta(minutes=minutes))
    assert world.new(policy=policy).reservation.inactivity is None
