"""Windows of maintenance beside people who book, other windows, several runs at once and GPUs that join."""

import asyncio
from datetime import timedelta

import pytest

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.windows import Fate
from reservation_core.domain.errors import (
    CalendarConflictError,
)
from reservation_core.domain.statuses import BookingStatus, GpuState
from reservation_core.usecases.nodes.maintenance import (
    add_joined_cards,
    end_window,
    keep_windows,
    view_window,
)
from reservation_core.usecases.nodes.update_inventory import update_inventory
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.bookings.test_keep_bookings import running_within
from tests.integration.reservation_core.usecases.nodes.maintenance_world import (
    EVERYWHERE,
    GRACE,
    NINE,
    fates,
    places,
    planned,
    rest_of,
    states,
    wanted,
)


async def test_a_window_and_many_who_book_at_the_same_time(bookings: BookingWorld) -> None:
    """Whatever the order, no two have a card at once, and everybody gets an answer."""

    async def tries(number: int) -> str:
        try:
            return (await bookings.booked(NINE + number % 3 * MINUTE, HOUR)).id
        except Exception as error:  # noqa: BLE001 - only its kind matters
            return type(error).__name__

    async def window() -> str:
        for _ in range(20):
            try:
                return (await planned(bookings, wanted(**EVERYWHERE))).id
            except CalendarConflictError:
                continue
        raise AssertionError("the window was never made")

    answers = await asyncio.gather(*(tries(number) for number in range(6)), window(), *(tries(n) for n in range(6)))
    assert all(answer.startswith(("bkg-", "mnt-")) or answer == "NotBookableError" for answer in answers)
    overlapping = await bookings.rows(
        "SELECT a.id FROM allocations a JOIN allocations b ON a.gpu_id = b.gpu_id AND a.id < b.id "
        "AND a.during && b.during"
    )
    assert overlapping == []
    left = await bookings.rows(
        "SELECT DISTINCT reservation_id FROM allocations WHERE during && tstzrange(:s, :e)", s=NINE, e=NINE + 4 * HOUR
    )
    assert [row["reservation_id"][:4] for row in left] == ["mnt-"]


@pytest.mark.parametrize("runs", [3])
async def test_several_runs_begin_and_end_a_window_once(bookings: BookingWorld, runs: int) -> None:
    window = await planned(bookings)
    for when in (NINE, NINE + 4 * HOUR):
        await bookings.time.set(when)
        assert sum(await asyncio.gather(*(keep_windows(bookings.world.uow) for _ in range(runs)))) == 1
    assert await bookings.kinds(window.id) == ["maintenance_planned", "maintenance_started", "maintenance_ended"]


@pytest.mark.parametrize("ahead", [0, 2])
async def test_a_booking_that_has_begun_unnoticed_does_not_move_from_under_its_jobs(
    bookings: BookingWorld, ahead: int
) -> None:
    made = await bookings.booked(NINE, 8 * HOUR, gpus=2)
    await bookings.time.set(NINE)
    assert (await bookings.booking(made.id)).status is BookingStatus.CONFIRMED
    runs = await running_within(bookings, made.id)
    await bookings.time.go_on(timedelta(seconds=5))
    node = (await bookings.booking(made.id)).cards[0].node
    window = await planned(bookings, wanted(NINE + ahead * HOUR if ahead else None, node=node))
    assert fates(window) == {made.id: Fate.GOES_ON, runs: Fate.ENDS_EARLIER if ahead else Fate.ENDED}
    # From then on it is on the other node.
    rest = await rest_of(bookings, window, made.id)
    assert rest.span == Span(NINE + ahead * HOUR, NINE + 8 * HOUR)
    assert {name for name, _ in places(rest)} == {"a", "b"} - {node}


async def test_cards_that_join_a_node_join_its_window(bookings: BookingWorld) -> None:
    world = bookings.world
    whole, some = await planned(bookings), await planned(bookings, wanted(gpus=[{"node": "b", "index": 0}]))
    world.cluster.cards |= {"a": 4, "b": 3}
    await update_inventory(world.uow, world.cluster, world.clock)
    # Somebody is quicker than the next look.
    made = await bookings.booked(NINE + HOUR, node="a", gpus=2)
    assert {(card.node, card.index) for card in made.cards} == {("a", 2), ("a", 3)}
    assert await add_joined_cards(world.uow, bookings.ids, GRACE) == 2
    assert await add_joined_cards(world.uow, bookings.ids, GRACE) == 0
    async with world.uow() as uow:
        grown, same = await view_window(uow, whole.id), await view_window(uow, some.id)
    assert [card.index for card in grown.cards] == [0, 1, 2, 3]
    assert len(same.cards) == 1
    assert fates(grown) == {made.id: Fate.CANCELLED}
    assert await bookings.taken(whole.id) == [(NINE, NINE + 4 * HOUR, False)] * 4
    assert (await bookings.kinds(whole.id))[-1] == "maintenance_cards_joined"
    # One that comes while it is open is in it for the rest.
    world.clock.at = NINE + HOUR
    await bookings.time.set(NINE + HOUR)
    assert await keep_windows(world.uow) == 2
    world.cluster.cards["a"] = 5
    await update_inventory(world.uow, world.cluster, world.clock)
    assert await add_joined_cards(world.uow, bookings.ids, GRACE) == 1
    assert (await bookings.taken(whole.id))[-1] == (NINE + HOUR, NINE + 4 * HOUR, False)
    await bookings.time.set(NINE + 4 * HOUR)
    assert await keep_windows(world.uow) == 2
    assert set((await states(bookings)).values()) == {GpuState.FREE}
    assert await add_joined_cards(world.uow, bookings.ids, GRACE) == 0


async def test_a_card_that_another_window_has_stays_in_that(bookings: BookingWorld) -> None:
    world = bookings.world
    whole = await planned(bookings)
    world.cluster.cards["a"] = 3
    await update_inventory(world.uow, world.cluster, world.clock)
    other = await planned(bookings, wanted(NINE + HOUR, HOUR, gpus=[{"node": "a", "index": 2}]))
    assert await add_joined_cards(world.uow, bookings.ids, GRACE) == 0
    async with world.uow() as uow:
        await end_window(uow, await bookings.root(), other.id)
    assert await add_joined_cards(world.uow, bookings.ids, GRACE) == 1
    async with world.uow() as uow:
        assert len((await view_window(uow, whole.id)).cards) == 3
