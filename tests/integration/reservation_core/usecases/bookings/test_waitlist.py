"""The waitlist on a real database whose clock is set."""

import asyncio
from datetime import timedelta

import pytest

from reservation_core.domain.errors import NotFoundError, NotOfferedError
from reservation_core.domain.policy.limits import Rules
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.statuses import BookingReason, BookingStatus
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.bookings.waitlist import Waitlist, accept, decline
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.waiting import eventually

NINE = START + 24 * HOUR
OFFER = timedelta(minutes=30)


async def serve(bookings: BookingWorld) -> int:
    return await Waitlist(bookings.world.uow, bookings.ids, OFFER).serve()


async def cancelled(bookings: BookingWorld, booking_id: str) -> None:
    async with bookings.world.uow() as uow:
        await cancel_booking(uow, bookings.world.who, booking_id, "this", None)


async def test_what_a_cancel_frees_is_offered_to_the_first_who_waits(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, gpus=2, nodes=2)
    bob, carol = await bookings.person("bob"), await bookings.person("carol")
    first = await bookings.booked(NINE, gpus=2, nodes=2, wait=True, who=bob)
    second = await bookings.booked(NINE, gpus=1, wait=True, who=carol)
    assert first.status is BookingStatus.WAITING
    assert await serve(bookings) == 0
    await cancelled(bookings, full.id)
    assert await serve(bookings) == 1
    row = await bookings.booking(first.id)
    assert (row.status, row.offer_until, len(row.cards)) == (BookingStatus.OFFERED, START + OFFER, 4)
    assert (await bookings.booking(second.id)).status is BookingStatus.WAITING
    assert await bookings.taken(first.id) == [(NINE, NINE + HOUR, False)] * 4
    async with bookings.world.uow() as uow:
        taken = await accept(uow, bob, first.id, row.version, bookings.ids)
    assert (taken.status, taken.offer_until) == (BookingStatus.CONFIRMED, None)
    assert await bookings.kinds(first.id) == ["booking_waitlisted", "booking_offered", "booking_confirmed"]
    assert await serve(bookings) == 0


async def test_an_offer_that_is_declined_or_runs_out_goes_to_the_next(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, gpus=2, nodes=2)
    waiting = [
        await bookings.booked(NINE, gpus=2, nodes=2, wait=True, who=await bookings.person(name))
        for name in ("bob", "carol", "dave")
    ]
    await cancelled(bookings, full.id)
    await serve(bookings)
    admin = bookings.world.who
    with pytest.raises(NotFoundError):
        async with bookings.world.uow() as uow:
            await decline(uow, admin, waiting[0].id, None, bookings.ids)
    bob = (await bookings.booking(waiting[0].id)).user_id
    async with bookings.world.uow() as uow:
        principal = type(admin)(bob, "bob", admin.role, "tok", None)
        gone = await decline(uow, principal, waiting[0].id, None, bookings.ids)
    assert (gone.status, gone.why.code) == (BookingStatus.CANCELLED, BookingReason.DECLINED)
    assert await serve(bookings) == 1
    assert (await bookings.booking(waiting[1].id)).status is BookingStatus.OFFERED
    await bookings.at(START + OFFER)
    row = await bookings.booking(waiting[1].id)
    assert (row.status, row.why.code) == (BookingStatus.EXPIRED, BookingReason.OFFER_RAN_OUT)
    assert await bookings.taken(waiting[1].id) == []
    assert await serve(bookings) == 1
    assert (await bookings.booking(waiting[2].id)).status is BookingStatus.OFFERED


async def test_who_wants_it_unasked_has_it_at_once(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, gpus=2, nodes=2)
    waits = await bookings.booked(NINE, gpus=1, wait=True, auto_accept=True, who=await bookings.person("bob"))
    await cancelled(bookings, full.id)
    assert await serve(bookings) == 1
    row = await bookings.booking(waits.id)
    assert (row.status, row.wanted.gpu_type, row.why.code) == (BookingStatus.CONFIRMED, "h100", BookingReason.BOOKED)
    with pytest.raises(NotOfferedError):
        async with bookings.world.uow() as uow:
            await decline(uow, bookings.world.who.__class__(row.user_id, "bob", bookings.world.who.role, "t", None),
                          waits.id, None, bookings.ids)  # fmt: skip


async def test_a_request_whose_start_has_come_is_over(bookings: BookingWorld) -> None:
    await bookings.booked(NINE, gpus=2, nodes=2)
    waits = await bookings.booked(NINE, wait=True)
    await bookings.at(NINE)
    row = await bookings.booking(waits.id)
    assert (row.status, row.why.code) == (BookingStatus.EXPIRED, BookingReason.WAITED_IN_VAIN)
    assert await bookings.kinds(waits.id) == ["booking_waitlisted", "booking_wait_expired"]


async def test_an_offer_never_outlasts_the_start(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, gpus=2, nodes=2)
    waits = await bookings.booked(NINE, wait=True)
    await bookings.time.set(NINE - 10 * MINUTE)
    await cancelled(bookings, full.id)
    await serve(bookings)
    assert (await bookings.booking(waits.id)).offer_until == NINE
    await bookings.at(NINE)
    assert (await bookings.booking(waits.id)).status is BookingStatus.EXPIRED


async def test_several_looks_at_once_serve_each_card_once(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, gpus=2, nodes=2)
    waits = [await bookings.booked(NINE, gpus=2, wait=True, auto_accept=number % 2 == 0) for number in range(4)]
    await cancelled(bookings, full.id)
    assert sum(await asyncio.gather(*(serve(bookings) for _ in range(4)))) == 2
    statuses = [(await bookings.booking(request.id)).status for request in waits]
    assert statuses == [
        BookingStatus.CONFIRMED,
        BookingStatus.OFFERED,
        BookingStatus.WAITING,
        BookingStatus.WAITING,
    ]


async def test_what_a_release_frees_is_served(bookings: BookingWorld) -> None:
    bookings.keeping = type(bookings.keeping)(bookings.keeping.rules, 30 * MINUTE)
    await bookings.booked(NINE, 4 * HOUR, gpus=2, nodes=2)
    waits = await bookings.booked(NINE + HOUR, gpus=1, wait=True, auto_accept=True)
    await bookings.at(NINE)
    await bookings.at(NINE + 15 * MINUTE)
    assert await serve(bookings) == 0
    await bookings.at(NINE + 30 * MINUTE)
    assert await serve(bookings) == 1
    assert (await bookings.booking(waits.id)).status is BookingStatus.CONFIRMED


async def test_who_may_not_have_it_now_keeps_it_from_nobody(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, gpus=2, nodes=2)
    bob, carol = await bookings.person("bob"), await bookings.person("carol")
    first = await bookings.booked(NINE, gpus=2, nodes=2, wait=True, who=bob)
    second = await bookings.booked(NINE, gpus=2, nodes=2, wait=True, who=carol)
    async with bookings.world.uow() as uow:
        await uow.policies.replace_rule(Scope(user="bob"), Rules(max_gpus=1), by="root", from_file=False, now=START)
    await cancelled(bookings, full.id)
    assert await serve(bookings) == 1
    assert (await bookings.booking(first.id)).status is BookingStatus.WAITING
    assert (await bookings.booking(second.id)).status is BookingStatus.OFFERED


async def test_who_has_left_the_project_since_is_served_all_the_same(bookings: BookingWorld) -> None:
    """For what they asked for before, that is: as with jobs that wait."""
    alice = bookings.world.who
    async with bookings.world.uow() as uow:
        await uow.projects.create("vision", None, START)
        await uow.projects.add_member("vision", alice.user_id)
    bob = await bookings.person("bob")
    full = await bookings.booked(NINE, gpus=2, nodes=2, who=bob)
    waiting = await bookings.booked(NINE, project="vision", wait=True)
    async with bookings.world.uow() as uow:
        await uow.projects.remove_member("vision", alice.user_id)
    await bookings.rows("DELETE FROM allocations WHERE reservation_id = :id RETURNING id", id=full.id)
    assert await serve(bookings) == 1
    assert (await bookings.booking(waiting.id)).status is BookingStatus.OFFERED


async def test_who_is_disabled_is_offered_nothing(bookings: BookingWorld) -> None:
    """Though their request has not been cancelled yet."""
    full = await bookings.booked(NINE, gpus=2, nodes=2, who=await bookings.person("bob"))
    waiting = await bookings.booked(NINE, auto_accept=True, wait=True)
    await bookings.rows("DELETE FROM allocations WHERE reservation_id = :id RETURNING id", id=full.id)
    await bookings.rows("UPDATE users SET disabled_at = :at WHERE name = 'alice' RETURNING id", at=START)
    assert await serve(bookings) == 0
    assert (await bookings.booking(waiting.id)).status is BookingStatus.WAITING


async def test_those_who_wait_for_much_hide_nobody_behind_them(
    bookings: BookingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reservation_core.usecases.bookings.waitlist.MOST_WAITING", 2)
    held = [await bookings.booked(NINE, gpus=2) for _ in range(2)]
    bob, carol = await bookings.person("bob"), await bookings.person("carol")
    for hours in range(3):
        await bookings.booked(NINE - hours * HOUR, (hours + 1) * HOUR, gpus=2, nodes=2, wait=True, who=bob)
    served = await bookings.booked(NINE, gpus=2, wait=True, who=carol)
    await cancelled(bookings, held[0].id)
    assert await serve(bookings) == 1
    assert (await bookings.booking(served.id)).status is BookingStatus.OFFERED


MANY_WAIT = """
WITH slots AS (
    SELECT 'bkg-w' || lpad(CAST(i AS text), 6, '0') AS id, CAST(:start AS timestamptz) + i * interval '1 minute' AS at
    FROM generate_series(1, :count) i
), rows AS (
    INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration, priority, workload,
                              created_at, changed_at)
    SELECT id, 'booking', :user_id, 'waiting', 'waiting_for_slot', 'x', 2, 2, interval '1 hour', 0, '{}', :start, :start
    FROM slots ORDER BY id RETURNING id
)
INSERT INTO bookings (id, starts_at, ends_at, waits_until) SELECT id, at, at + interval '1 hour', at FROM slots
RETURNING id
"""


async def test_who_came_last_of_five_thousand_has_their_turn(bookings: BookingWorld) -> None:
    held = [await bookings.booked(NINE, 100 * HOUR, gpus=2) for _ in range(2)]
    await bookings.rows(MANY_WAIT, start=NINE, count=5000, user_id=bookings.world.who.user_id)
    last = await bookings.booked(NINE + 50 * HOUR, gpus=2, wait=True)
    waitlist = Waitlist(bookings.world.uow, bookings.ids, OFFER)
    assert await waitlist.serve() == 0
    await cancelled(bookings, held[0].id)
    assert await waitlist.serve() == 1
    assert (await bookings.booking(last.id)).status is BookingStatus.OFFERED
    # The others want both nodes.
    await cancelled(bookings, held[1].id)
    assert await waitlist.serve() > 0
    assert len(await bookings.rows("SELECT id FROM reservations WHERE status = 'offered'")) > 10


async def test_a_look_that_takes_long_is_gone_on_with(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, 4 * HOUR, gpus=2, nodes=2)
    waits = [
        await bookings.booked(NINE, gpus=2, wait=True, who=await bookings.person(name)) for name in ("bob", "carol")
    ]
    hurried = Waitlist(bookings.world.uow, bookings.ids, OFFER, at_most_s=0)
    await cancelled(bookings, full.id)
    assert await hurried.serve() == 0
    # What comes free or comes in meanwhile is for the pass after this one.
    assert (await bookings.booking(waits[0].id)).status is BookingStatus.WAITING
    hurried._at_most_s = 60
    assert await hurried.serve() == 2
    assert await hurried.serve() == 0


async def test_a_look_that_is_called_off_before_its_turn_leaves_the_next_its_own(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE, gpus=2, nodes=2)
    await bookings.booked(NINE, gpus=2, wait=True, who=await bookings.person("bob"))
    await cancelled(bookings, full.id)
    waitlist = Waitlist(bookings.world.uow, bookings.ids, OFFER)
    async with waitlist._one_at_a_time:
        called_off = asyncio.create_task(waitlist.serve())
        await eventually(lambda: waitlist._asked)
        called_off.cancel()
        await asyncio.gather(called_off, return_exceptions=True)
    assert await waitlist.serve() == 1


async def test_what_comes_free_during_a_pass_is_for_who_was_before(bookings: BookingWorld) -> None:
    """A later request does not get, in a pass that has begun, what an earlier one in it could have had."""
    first_half = await bookings.booked(NINE, gpus=2)
    second_half = await bookings.booked(NINE, gpus=2)
    large = await bookings.booked(NINE, gpus=2, nodes=2, wait=True, who=await bookings.person("bob"))
    small = await bookings.booked(NINE, gpus=2, wait=True, who=await bookings.person("carol"))
    waitlist = Waitlist(bookings.world.uow, bookings.ids, OFFER)
    await cancelled(bookings, first_half.id)
    waitlist._turns = await waitlist._begin(0)
    assert waitlist._turns.try_next() is None
    await cancelled(bookings, second_half.id)
    turn = waitlist._turns.try_next()
    assert turn is not None
    assert turn.request.id == small.id
    assert {card.gpu_id for card in (await bookings.booking(large.id)).cards} == set()
    assert len(turn.among) == 2


async def test_nothing_is_asked_again_while_nothing_changes(bookings: BookingWorld) -> None:
    await bookings.booked(NINE, gpus=2, nodes=2)
    barred = await bookings.booked(NINE, gpus=1, wait=True, who=await bookings.person("bob"))
    waitlist = Waitlist(bookings.world.uow, bookings.ids, OFFER)
    assert await waitlist.serve() == 0
    turns = await waitlist._begin(asyncio.get_running_loop().time())
    assert turns.over
    # A minute after everybody was asked they are again: what the policy allows changes by itself.
    later = await waitlist._begin(asyncio.get_running_loop().time() + 61)
    assert not later.over
    assert barred.status is BookingStatus.WAITING
