"""What becomes of bookings that a maintenance window needs the cards of."""

from datetime import timedelta

import pytest

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.windows import Fate
from reservation_core.domain.statuses import BookingReason, BookingStatus
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.bookings.waitlist import Waitlist
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.nodes.test_maintenance import (
    NINE,
    fates,
    places,
    planned,
    previewed,
    rest_of,
    wanted,
)

SECOND = timedelta(seconds=1)


async def test_what_comes_after_the_window_stays_the_bookers(bookings: BookingWorld) -> None:
    """Both nodes are full, so that there is nowhere to go: it is cut around the window, on its own cards."""
    await bookings.booked(NINE - 2 * HOUR, 24 * HOUR, gpus=2, node="b")
    made = await bookings.booked(NINE - 2 * HOUR, 24 * HOUR, gpus=2, title="thesis")
    window = await planned(bookings)
    assert fates(window) == {made.id: Fate.GOES_ON}
    [affected] = window.affected
    assert (affected.ends_at, affected.resumes_at) == (NINE, NINE + 4 * HOUR)
    before = await bookings.booking(made.id)
    assert (before.status, before.span) == (BookingStatus.CONFIRMED, Span(NINE - 2 * HOUR, NINE))
    after = await rest_of(bookings, window, made.id)
    assert after.span == Span(NINE + 4 * HOUR, NINE + 22 * HOUR)
    assert (after.title, after.user, places(after)) == ("thesis", "alice", places(made))
    assert "New fans." in before.why.detail
    assert after.id in before.why.detail
    assert await bookings.taken(made.id) == [(NINE - 2 * HOUR, NINE, False)] * 2
    assert await bookings.taken(after.id) == [(NINE + 4 * HOUR, NINE + 22 * HOUR, False)] * 2
    assert after.id in (await bookings.told(made.id, "maintenance_affects"))["why"]
    # It is a booking like any other: it begins by itself.
    await bookings.at(NINE + 4 * HOUR)
    assert (await bookings.booking(after.id)).status is BookingStatus.ACTIVE


async def test_what_is_left_goes_on_elsewhere_without_a_gap_where_it_can(bookings: BookingWorld) -> None:
    """The other node is somebody's at first: all of it can't move, the rest can."""
    await bookings.booked(NINE - 2 * HOUR, 2 * HOUR, gpus=2, node="b")
    made = await bookings.booked(NINE - 2 * HOUR, 24 * HOUR, gpus=2)
    assert {name for name, _ in places(made)} == {"a"}
    window = await planned(bookings)
    assert fates(window) == {made.id: Fate.GOES_ON}
    rest = await rest_of(bookings, window, made.id)
    assert rest.span == Span(NINE, NINE + 22 * HOUR)
    assert {name for name, _ in places(rest)} == {"b"}


async def test_what_would_begin_in_the_window_begins_when_it_is_over(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE + HOUR, 8 * HOUR, gpus=2, node="a", workload={"command": ["true"]})
    window = await planned(bookings)
    assert fates(window) == {made.id: Fate.BEGINS_LATER}
    row = await bookings.booking(made.id)
    assert (row.status, row.span) == (BookingStatus.CONFIRMED, Span(NINE + 4 * HOUR, NINE + 9 * HOUR))
    assert (row.workload is not None, places(row)) == (True, places(made))
    assert await bookings.taken(made.id) == [(NINE + 4 * HOUR, NINE + 9 * HOUR, False)] * 2
    assert "maintenance_affects" in await bookings.kinds(made.id)
    # Its workload starts then, once.
    await bookings.at(NINE + HOUR)
    assert (await bookings.booking(made.id)).jobs == ()
    await bookings.at(NINE + 4 * HOUR)
    assert len((await bookings.booking(made.id)).jobs) == 1


async def test_what_is_only_offered_is_nobodys_yet(bookings: BookingWorld) -> None:
    full = await bookings.booked(NINE - HOUR, 8 * HOUR, gpus=2, node="a")
    waits = await bookings.booked(NINE - HOUR, 8 * HOUR, gpus=2, node="a", wait=True, who=await bookings.person("bob"))
    async with bookings.world.uow() as uow:
        await cancel_booking(uow, bookings.world.who, full.id, "this", None)
    assert await Waitlist(bookings.world.uow, bookings.ids, HOUR).serve() == 1
    window = await planned(bookings)
    assert fates(window) == {waits.id: Fate.ENDS_EARLIER}


async def test_a_dry_run_tells_the_parts_without_making_them(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE - HOUR, 8 * HOUR, gpus=2, node="a")
    [affected] = (await previewed(bookings)).affected
    assert (affected.fate, affected.ends_at, affected.resumes_at) == (Fate.GOES_ON, NINE, NINE + 4 * HOUR)
    assert (await bookings.booking(made.id)).span == made.span
    assert len(await bookings.rows("SELECT id FROM reservations")) == 1


TIMES = [(0, 3), (-2, 1), (-2, 2), (-2, 6), (-2, 9), (0, 9), (1, 3), (1, 9), (3, 8), (4, 6)]


@pytest.mark.parametrize(
    ("hours", "begun"), [*((time, False) for time in TIMES), *((time, True) for time in TIMES if time[0] < 0)]
)
async def test_nobody_loses_more_than_the_window_takes(
    bookings: BookingWorld, hours: tuple[int, int], begun: bool
) -> None:
    """Whatever the times are: with nowhere to go, a booker keeps every minute of their cards outside the window."""
    start, end = (NINE + hour * HOUR for hour in hours)
    made = await bookings.booked(start, end - start, gpus=2, node="a")
    if begun:
        await bookings.at(start + 30 * MINUTE)
    await planned(bookings)
    rows = await bookings.rows(
        "SELECT gpu_id, lower(during) AS s, upper(during) AS e FROM allocations a JOIN reservations r "
        "ON r.id = a.reservation_id WHERE r.user_id = :u AND r.kind = 'booking' AND NOT isempty(during) ORDER BY 1, 2",
        u=made.user_id,
    )
    kept = [(s, e) for s, e in ((start, min(end, NINE)), (max(start, NINE + 4 * HOUR), end)) if s < e]
    assert [(row["s"], row["e"]) for row in rows] == kept * 2


async def test_a_workload_whose_time_came_unnoticed_starts_in_what_is_left(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, 6 * HOUR, gpus=2, node="a", workload={"command": ["true"]})
    await bookings.time.set(NINE + SECOND)
    window = await planned(bookings, wanted(None, 2 * HOUR))
    rest = await rest_of(bookings, window, made.id)
    await bookings.look()
    await bookings.at(rest.span.start)
    old, rest = await bookings.booking(made.id), await bookings.booking(rest.id)
    assert (old.status, old.jobs) == (BookingStatus.CANCELLED, ())
    assert (rest.status, rest.workload, len(rest.jobs)) == (BookingStatus.ACTIVE, made.workload, 1)


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_workload_never_starts_twice(bookings: BookingWorld, noticed: bool) -> None:
    """Where there is time before the window it has its turn there, and not once more in what is left."""
    made = await bookings.booked(NINE, 6 * HOUR, gpus=2, node="a", workload={"command": ["true"]})
    await bookings.time.set(NINE + SECOND)
    if noticed:
        await bookings.look()
    window = await planned(bookings, wanted(None if noticed else NINE + HOUR, 2 * HOUR))
    rest = await rest_of(bookings, window, made.id)
    await bookings.look()
    assert (len((await bookings.booking(made.id)).jobs), rest.workload) == (1, None)


async def test_a_refused_workload_is_told_once_beside_what_maintenance_says(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, 6 * HOUR, gpus=2, node="a", workload={"command": ["true"]})
    await bookings.rows("UPDATE users SET disabled_at = :now WHERE name = 'alice' RETURNING id", now=START)
    await bookings.at(NINE)
    refused = (await bookings.booking(made.id)).why
    window = await planned(bookings, wanted(NINE + 2 * HOUR, HOUR))
    rest = await rest_of(bookings, window, made.id)
    assert (await bookings.look()).changed == 0
    why = (await bookings.booking(made.id)).why
    assert why.code is BookingReason.WORKLOAD_REFUSED
    assert refused.detail in why.detail
    assert rest.id in why.detail
    assert (await bookings.kinds(made.id)).count("workload_refused") == 1
