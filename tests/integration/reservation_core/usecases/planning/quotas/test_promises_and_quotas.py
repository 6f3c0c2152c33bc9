"""What was promised, and what its owner's quota says by then."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.contracts.bookings import BookingCreate
from reservation_core.domain.errors import NotBookableError
from reservation_core.domain.policy.limits import Relaxation, Rules
from reservation_core.domain.policy.nouns import RuleName, Scope
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.bookings.book import book
from reservation_core.usecases.planning.planner import Planner
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.planning.quotas.test_project_quotas import a_lock_is_waited_for
from tests.integration.reservation_core.usecases.planning.quotas.test_quotas import again, ended, rule

_OF_ALICE = Scope(user="alice")


async def at_most(bookings: BookingWorld, gpus: int, scope: Scope = _OF_ALICE) -> None:
    async with bookings.world.uow() as uow:
        await uow.policies.replace_rule(scope, Rules(max_gpus=gpus), by="root", from_file=False, now=START)


async def promised(bookings: BookingWorld, gpus: int, nodes: int) -> tuple[Planner, str, str]:
    """Alice's job waits behind bob's of all four cards; hers has a slot."""
    world = bookings.world
    world.who, alice = await bookings.person("bob"), world.who
    his = await world.submitted(gpus=2, nodes=2)
    planner = await world.planner()
    await planner.cycle()
    world.who = alice
    hers = await world.submitted(gpus=gpus, nodes=nodes)
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
    assert said["because"].startswith("Asked for: 4 GPUs; the limit is 2 at once (user alice)")
    assert said["promised_start_at"] is not None


async def test_who_has_booked_their_quota_for_that_time_is_promised_a_later_one_and_has_it(
    bookings: BookingWorld,
) -> None:
    world = bookings.world
    await rule(world, Scope(user="alice"), max_gpus=2)
    bob = await bookings.person("bob")
    his = await replace(world, who=bob).submitted(gpus=2, nodes=2)
    planner = await world.planner()
    await planner.cycle()
    [(_, until, _), *_] = await bookings.taken(his)
    # As bob's ends there are cards for her job; but then she has booked two others.
    booked = await bookings.booked(until, length=2 * HOUR, gpus=2)
    hers = await world.submitted(gpus=2)
    await again(planner)
    [(slot, _, _), _] = await bookings.taken(hers)
    assert slot == booked.span.end
    await ended(bookings, his, pods=2)
    await again(planner)
    await bookings.at(slot)
    await again(planner)
    assert (await world.row(hers)).status is JobStatus.STARTING
    assert "start_promise_missed" not in await world.kinds(hers)


async def test_what_is_booked_under_an_exception_takes_nothing_from_a_promise(bookings: BookingWorld) -> None:
    world = bookings.world
    soon = (Relaxation(2 * HOUR, frozenset({RuleName.MAX_GPUS})),)
    await rule(world, Scope(user="alice"), max_gpus=1, relaxed_if_starts_within=soon)
    first, hers = await world.submitted(), await world.submitted()
    planner = await world.planner()
    await again(planner)
    before = await bookings.taken(hers)
    slot = before[0][0]
    await bookings.booked(slot - 30 * MINUTE, length=HOUR)
    # It counts for what she asks for later, and what would begin before its time.
    late = await world.submitted()
    await ended(bookings, first)
    await again(planner)
    assert await bookings.taken(hers) == before
    assert (await bookings.taken(late))[0][0] > slot
    await bookings.at(slot)
    await again(planner)
    assert (await world.row(hers)).status is JobStatus.STARTING
    assert "start_promise_missed" not in await world.kinds(hers)
    assert (await world.row(late)).status is JobStatus.QUEUED


async def test_a_slot_waits_for_a_booking_of_its_owner_that_is_being_made(bookings: BookingWorld) -> None:
    world = bookings.world
    await rule(world, Scope(user="alice"), max_gpus=1)
    bob = await bookings.person("bob")
    his = await replace(world, who=bob).submitted(gpus=2, nodes=2)
    planner = await world.planner()
    await planner.cycle()
    [(_, until, _), *_] = await bookings.taken(his)
    hers = await world.submitted()
    await planner.cycle()
    # There are cards for both: only her quota speaks against it.
    wanted = BookingCreate.model_validate({"gpus": 1, "node": "b", "start": until.isoformat(), "duration": 3600})

    async with world.uow() as uow:
        booked = await book(uow, world.who, wanted, bookings.ids)
        slots = asyncio.create_task(planner.give_slots())
        await a_lock_is_waited_for(bookings)
        assert not slots.done()
    await slots
    assert await bookings.taken(hers) == []
    await again(planner)
    [(slot, _, _)] = await bookings.taken(hers)
    assert slot == booked.span.end


async def test_a_start_that_a_quota_refuses_before_its_slot_has_come_keeps_the_slot(bookings: BookingWorld) -> None:
    planner, his, hers = await promised(bookings, gpus=1, nodes=1)
    before = await bookings.taken(hers)
    await rule(bookings.world, Scope(user="alice"), max_gpus=2)
    await planner.cycle()
    planner._quota._every = HOUR  # what it knows is old from now on
    now = bookings.world.clock.now()
    await ended(bookings, his, pods=2)
    await bookings.booked(now + 2 * MINUTE, length=30 * MINUTE, gpus=2)
    await planner.cycle()
    assert (await bookings.world.row(hers)).status is JobStatus.QUEUED
    assert await bookings.taken(hers) == before
    assert "start_promise_missed" not in await bookings.world.kinds(hers)
    [(slot, _, _)] = before
    await bookings.at(slot)
    await again(planner)
    assert (await bookings.world.row(hers)).status is JobStatus.STARTING


async def test_a_booking_that_would_take_a_promises_turn_is_refused_with_the_rule(bookings: BookingWorld) -> None:
    _, _, hers = await promised(bookings, gpus=1, nodes=1)
    await rule(bookings.world, Scope(user="alice"), max_gpus=1)
    [(slot, end, _)] = await bookings.taken(hers)
    with pytest.raises(NotBookableError) as refused:
        await bookings.booked(slot.replace(second=0, microsecond=0) + MINUTE)
    [broken] = refused.value.broken_rules
    assert broken.code == "max_gpus"
    assert f"1 of them promised to {hers}" in broken.detail
    assert broken.possible_from is not None
    assert end <= broken.possible_from < end + timedelta(minutes=1)
