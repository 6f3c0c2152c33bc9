"""Rules, ends of jobs and passes of the planner for tests of quotas."""

from reservation_core.domain.model import PodPhase
from reservation_core.domain.policy.limits import Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.planning.planner import Planner
from tests.integration.reservation_core.usecases.booking_world import MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.world import World, pod


async def rule(world: World, scope: Scope = Scope(), **fields: object) -> None:  # noqa: B008
    async with world.uow() as uow:
        await uow.policies.replace_rule(scope, Rules(**fields), by="root", from_file=False, now=world.clock.now())  # type: ignore[arg-type]


async def statuses(world: World, *jobs: str) -> list[JobStatus]:
    return [(await world.row(job)).status for job in jobs]


async def ended(bookings: BookingWorld, job: str, pods: int = 1) -> None:
    """A minute later its pods run, finish and go."""
    world = bookings.world
    await world.operate()
    await bookings.time.set(world.clock.go_on(MINUTE))
    for rank in range(pods):
        await world.see(world.cluster.show(pod(job, rank), PodPhase.RUNNING, started_at=world.clock.now()))
    for rank in range(pods):
        await world.see(
            world.cluster.show(pod(job, rank), PodPhase.FINISHED, exit_code=0, finished_at=world.clock.now())
        )
    await world.operate()
    for rank in range(pods):
        await world.see(world.cluster.show(pod(job, rank), PodPhase.GONE))
    assert (await world.row(job)).status is JobStatus.SUCCEEDED


async def again(planner: Planner) -> None:
    """All that a planner does in a second; what it finds for slots starts in them."""
    await planner.cycle()
    await planner.give_slots()
    await planner.cycle()
    await planner.publish_estimates()
