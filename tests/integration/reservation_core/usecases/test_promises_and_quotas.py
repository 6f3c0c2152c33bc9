"""What was promised, and what its owner's quota says by then."""

from reservation_core.domain.limits import Rules, Scope
from reservation_core.domain.model import JobStatus
from reservation_core.usecases.plan_and_allocate import Planner
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.test_quotas import ended

_OF_ALICE = Scope(user="alice")


async def at_most(bookings: BookingWorld, gpus: int, scope: Scope = _OF_ALICE) -> None:
    async with bookings.world.uow() as uow:
        await uow.policies.put_rule(scope, Rules(max_gpus=gpus), by="root", from_file=False, now=START)


async def promised(bookings: BookingWorld, gpus: int, nodes: int) -> tuple[Planner, str, str]:
    """Alice's job waits behind bob's of all four cards; hers has a slot."""
    world = bookings.world
    world.who, alice = await bookings.person("bob"), world.who
    his = await world.submitted(gpus=2, nodes=2)
    world.who = alice
    hers = await world.submitted(gpus=gpus, nodes=nodes)
    planner = await world.planner()
    await planner.cycle()
    await planner.give_slots()
    assert (await world.row(his)).status is JobStatus.STARTING
    assert len(await bookings.taken(hers)) == gpus * nodes
    return planner, his, hers


async def test_who_loses_a_promise_to_their_quota_is_told_so_once(bookings: BookingWorld) -> None:
    planner, his, hers = await promised(bookings, gpus=2, nodes=2)
    await at_most(bookings, 2)
    await ended(bookings, his, pods=2)
    # Till then nothing is lost: the rule may change again.
    [(slot, _, _), *_] = await bookings.taken(hers)
    await planner.cycle()
    assert len(await bookings.taken(hers)) == 4
    await bookings.at(slot)
    for _ in range(3):
        await planner.cycle()
        await planner.give_slots()
        await bookings.time.set(bookings.world.clock.go_on(MINUTE))
    assert (await bookings.world.row(hers)).status is JobStatus.QUEUED
    assert await bookings.taken(hers) == []
    assert (await bookings.world.kinds(hers)).count("start_promise_missed") == 1
    said = await bookings.told(hers, "start_promise_missed")
    assert said["because"].startswith("Asked for: 4 GPUs; at most 2 at once are allowed (user alice)")
    assert said["promised_start_at"] is not None
