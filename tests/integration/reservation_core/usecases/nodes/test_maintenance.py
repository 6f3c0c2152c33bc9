"""Maintenance windows on a real database whose clock is set."""

import asyncio
from datetime import datetime, timedelta

import pytest

from reservation_core.contracts.maintenance import MaintenanceCreate
from reservation_core.domain.bookings.maintenance import Window
from reservation_core.domain.bookings.nouns import Booking, BookingReason, Span
from reservation_core.domain.bookings.windows import Fate, WindowStatus
from reservation_core.domain.errors import (
    AlreadyFinalError,
    CalendarConflictError,
    ForbiddenError,
    LimitExceededError,
    NotFoundError,
)
from reservation_core.domain.model import BookingStatus, GpuState, JobStatus, PodPhase
from reservation_core.usecases.nodes.maintenance import (
    add_joined_cards,
    end_window,
    keep_windows,
    plan_window,
    preview_window,
    view_window,
)
from reservation_core.usecases.nodes.update_inventory import update_inventory
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.bookings.test_keep_bookings import running_within, within
from tests.integration.reservation_core.usecases.world import pod

NINE = START + 24 * HOUR
GRACE = timedelta(seconds=10)
EVERYWHERE = {"nodes": ["a", "b"]}


def wanted(start: datetime | None = NINE, length: timedelta = 4 * HOUR, **fields: object) -> MaintenanceCreate:
    return MaintenanceCreate.model_validate(
        {
            **({} if start is None else {"start": start.isoformat()}),
            "duration": int(length.total_seconds()),
            "reason": "New fans.",
            **({"node": "a"} if not {"nodes", "gpus"} & fields.keys() else {}),
            **fields,
        }
    )


async def planned(bookings: BookingWorld, request: MaintenanceCreate | None = None) -> Window:
    root = await bookings.root()
    async with bookings.world.uow() as uow:
        return await plan_window(uow, root, request or wanted(), bookings.ids, GRACE)


async def previewed(bookings: BookingWorld, request: MaintenanceCreate | None = None) -> Window:
    return await preview_window(bookings.world.uow, await bookings.root(), request or wanted(), bookings.ids, GRACE)


def fates(window: Window) -> dict[str, Fate]:
    return {affected_use.id: affected_use.fate for affected_use in window.affected}


async def rest_of(bookings: BookingWorld, window: Window, booking_id: str) -> Booking:
    """The booking that has what a window left of another."""
    [affected] = [affected_use for affected_use in window.affected if affected_use.id == booking_id]
    assert affected.goes_on_as is not None
    rest = await bookings.booking(affected.goes_on_as)
    assert (rest.status, rest.span.start) == (BookingStatus.CONFIRMED, affected.resumes_at)
    assert booking_id in rest.why.detail
    return rest


def places(booking: Booking) -> set[tuple[str, int]]:
    """Its cards."""
    return {(card.node, card.index) for card in booking.cards}


async def states(bookings: BookingWorld) -> dict[tuple[str, int], GpuState]:
    async with bookings.world.uow() as uow:
        return {(gpu.node, gpu.index): gpu.state for gpu in await uow.inventory.gpus(after=None, limit=100)}


async def test_cards_show_a_window_while_it_lasts_and_come_back(bookings: BookingWorld) -> None:
    window = await planned(bookings)
    assert (window.status, window.affected) == (WindowStatus.CONFIRMED, ())
    assert set((await states(bookings)).values()) == {GpuState.FREE}
    await bookings.time.set(NINE)
    assert await keep_windows(bookings.world.uow) == 1
    assert await keep_windows(bookings.world.uow) == 0
    assert await states(bookings) == {
        ("a", 0): GpuState.MAINTENANCE,
        ("a", 1): GpuState.MAINTENANCE,
        ("b", 0): GpuState.FREE,
        ("b", 1): GpuState.FREE,
    }
    async with bookings.world.uow() as uow:
        counts = await uow.inventory.gpu_counts()
    assert counts == [("h100", GpuState.FREE, 2), ("h100", GpuState.MAINTENANCE, 2)]
    await bookings.time.set(NINE + 4 * HOUR)
    assert await keep_windows(bookings.world.uow) == 1
    assert set((await states(bookings)).values()) == {GpuState.FREE}
    async with bookings.world.uow() as uow:
        assert (await view_window(uow, window.id)).status is WindowStatus.ENDED
    assert await bookings.kinds(window.id) == ["maintenance_planned", "maintenance_started", "maintenance_ended"]


async def test_nobody_can_book_under_a_window_and_jobs_go_around_it(bookings: BookingWorld) -> None:
    await planned(bookings, wanted(START + HOUR, **EVERYWHERE))
    with pytest.raises(Exception, match="GPU"):
        await bookings.booked(START + 2 * HOUR)
    short = await bookings.world.submitted(duration=1800)
    long = await bookings.world.submitted(duration=7200)
    await bookings.world.plan()
    assert (await bookings.world.row(short)).status is JobStatus.STARTING
    assert (await bookings.world.row(long)).status is JobStatus.QUEUED


async def test_a_booking_moves_to_other_cards_at_the_same_time(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, gpus=2)
    node = made.cards[0].node
    window = await planned(bookings, wanted(nodes=[node]))
    assert fates(window) == {made.id: Fate.MOVED}
    row = await bookings.booking(made.id)
    assert {card.node for card in row.cards} == {"a", "b"} - {node}
    assert (row.status, row.span, row.why.code) == (BookingStatus.CONFIRMED, made.span, BookingReason.MOVED)
    assert await bookings.taken(made.id) == [(NINE, NINE + HOUR, False)] * 2
    said = await bookings.told(made.id, "booking_moved")
    assert "New fans." in said["why"]
    assert said["where"] == f"{({'a', 'b'} - {node}).pop()} 0,1"


async def test_a_booking_that_can_t_move_is_cancelled_or_cut(bookings: BookingWorld) -> None:
    under = await bookings.booked(NINE + HOUR, gpus=2, nodes=2)
    before = await bookings.booked(NINE - HOUR, 2 * HOUR, gpus=2, nodes=2)
    window = await planned(bookings)
    assert fates(window) == {under.id: Fate.CANCELLED, before.id: Fate.ENDS_EARLIER}
    row = await bookings.booking(under.id)
    assert (row.status, row.why.code) == (BookingStatus.CANCELLED, BookingReason.MAINTENANCE)
    assert await bookings.taken(under.id) == []
    row = await bookings.booking(before.id)
    assert (row.status, row.span.end) == (BookingStatus.CONFIRMED, NINE)
    assert await bookings.taken(before.id) == [(NINE - HOUR, NINE, False)] * 4
    assert "maintenance_affects" in await bookings.kinds(before.id)


async def test_a_pinned_booking_does_not_move(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, node="a")
    assert fates(await planned(bookings)) == {made.id: Fate.CANCELLED}


async def test_running_work_is_drained_by_the_deadline(bookings: BookingWorld) -> None:
    await bookings.world.ran(gpus=2)
    job_id = await bookings.world.ran(gpus=2, duration=4 * 3600)
    node = (await bookings.world.cards(job_id))[0].node
    start = START + HOUR
    window = await planned(bookings, wanted(start, nodes=[node]))
    assert fates(window) == {job_id: Fate.ENDS_EARLIER}
    job = await bookings.world.row(job_id)
    assert (job.status, job.ends_at, job.range_end) == (JobStatus.RUNNING, start - GRACE, start)
    assert "New fans." in job.reason.detail
    assert "maintenance_affects" in await bookings.world.kinds(job_id)
    [operation] = [operation for operation in await bookings.world.operate() if operation.op == "deadline"]
    assert operation.id == job_id


async def test_a_window_at_once_ends_what_runs_and_lets_start_elsewhere_what_starts(bookings: BookingWorld) -> None:
    runs = await bookings.world.ran(gpus=2)
    starts = await bookings.world.started(gpus=2)
    await bookings.time.go_on(timedelta(seconds=1))
    window = await planned(bookings, wanted(None, **EVERYWHERE))
    assert window.status is WindowStatus.ACTIVE
    assert fates(window) == {runs: Fate.ENDED, starts: Fate.QUEUED_AGAIN}
    running, starting = await bookings.world.row(runs), await bookings.world.row(starts)
    assert (running.status, running.outcome, running.reason.code) == (
        JobStatus.ENDING,
        JobStatus.EXPIRED,
        "maintenance",
    )
    assert (starting.status, starting.outcome) == (JobStatus.ENDING, JobStatus.QUEUED)
    # Pods that are still there are seen to hold their cards; then the window is.
    assert set((await states(bookings)).values()) == {GpuState.HELD}
    await bookings.world.operate()
    for job_id in (runs, starts):
        await bookings.world.see(bookings.world.cluster.show(pod(job_id), PodPhase.GONE))
    assert set((await states(bookings)).values()) == {GpuState.MAINTENANCE}
    assert (await bookings.world.row(runs)).status is JobStatus.EXPIRED
    assert (await bookings.world.row(starts)).status is JobStatus.QUEUED


async def test_a_booking_in_its_slot_ends_earlier_with_what_runs_in_it(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, 8 * HOUR, gpus=2, node="a")
    await bookings.at(NINE)
    runs, waits = await running_within(bookings, made.id), await within(bookings, made.id)
    start = NINE + 2 * HOUR
    window = await planned(bookings, wanted(start, gpus=[{"node": "a", "index": 1}]))
    assert fates(window) == {made.id: Fate.GOES_ON, runs: Fate.ENDS_EARLIER}
    assert (await bookings.booking(made.id)).span.end == start
    # It is pinned to the node: what is left of it is its own again when the window is over.
    rest = await rest_of(bookings, window, made.id)
    assert rest.span == Span(start + 4 * HOUR, NINE + 8 * HOUR)
    assert places(rest) == places(made)
    assert (await bookings.world.row(runs)).range_end == start
    await bookings.at(start)
    assert (await bookings.booking(made.id)).status is BookingStatus.ENDED
    assert (await bookings.world.row(waits)).status is JobStatus.EXPIRED


async def test_a_window_at_once_ends_a_booking_in_its_slot(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE, 8 * HOUR, gpus=2, node="a")
    await bookings.at(NINE)
    runs = await running_within(bookings, made.id)
    await bookings.time.go_on(HOUR + timedelta(seconds=17))
    now = bookings.time.at
    window = await planned(bookings, wanted(None))
    assert fates(window) == {made.id: Fate.GOES_ON, runs: Fate.ENDED}
    assert (await rest_of(bookings, window, made.id)).span == Span(NINE + 5 * HOUR, NINE + 8 * HOUR)
    row = await bookings.booking(made.id)
    assert (row.status, row.finished_at, row.why.code) == (BookingStatus.ENDED, now, BookingReason.MAINTENANCE)
    assert await bookings.taken(made.id) == [(NINE, now, True)] * 2
    assert await bookings.taken(window.id) == [(now, NINE + 5 * HOUR, False)] * 2


async def slot_of(bookings: BookingWorld, gpu_id: int, start: datetime) -> str:
    """A waiting job that was promised a card."""
    job_id = await bookings.world.submitted()
    await bookings.rows(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, planned, created_at) "
        "VALUES (:j, 1, :gpu, 0, tstzrange(:s, :e), false, true, :s) RETURNING id",
        j=job_id,
        gpu=gpu_id,
        s=start,
        e=start + HOUR,
    )
    return job_id


async def test_slots_of_waiting_jobs_are_dropped_and_they_are_told(bookings: BookingWorld) -> None:
    [card] = await bookings.rows(
        "SELECT g.id FROM gpus g JOIN nodes n ON n.id = g.node_id WHERE n.name = 'a' AND g.index = 0"
    )
    job_id = await slot_of(bookings, card["id"], NINE + HOUR)
    window = await planned(bookings)
    assert fates(window) == {job_id: Fate.PLANNED_ANEW}
    assert await bookings.taken(job_id) == []
    assert (await bookings.world.row(job_id)).status is JobStatus.QUEUED
    assert "New fans." in (await bookings.told(job_id, "maintenance_affects"))["why"]


async def test_a_dry_run_says_it_all_and_changes_nothing(bookings: BookingWorld) -> None:
    moved = await bookings.booked(NINE, gpus=1)
    cancelled = await bookings.booked(NINE, gpus=1, node="a")
    runs = await bookings.world.ran(gpus=2, duration=20 * 3600)
    before = await bookings.rows("SELECT * FROM allocations ORDER BY id")
    events = await bookings.rows("SELECT count(*) AS n FROM events")
    request = wanted(START + 2 * HOUR, 48 * HOUR)
    window = await previewed(bookings, request)
    assert await bookings.rows("SELECT * FROM allocations ORDER BY id") == before
    assert await bookings.rows("SELECT count(*) AS n FROM events") == events
    assert await bookings.rows("SELECT * FROM maintenance_windows") == []
    assert {moved.id, cancelled.id} | ({runs} & fates(window).keys()) == fates(window).keys()
    real = await planned(bookings, request)
    assert fates(real) == fates(window)


async def test_two_windows_don_t_overlap_and_touching_is_not_overlapping(bookings: BookingWorld) -> None:
    first = await planned(bookings)
    with pytest.raises(CalendarConflictError, match=first.id):
        await planned(bookings, wanted(NINE + HOUR))
    await planned(bookings, wanted(NINE + 4 * HOUR))


async def test_a_window_is_taken_back_or_ended_early(bookings: BookingWorld) -> None:
    root = await bookings.root()
    ahead = await planned(bookings)
    async with bookings.world.uow() as uow:
        gone = await end_window(uow, root, ahead.id)
    assert (gone.status, len(gone.cards)) == (WindowStatus.CANCELLED, 2)
    assert await bookings.taken(ahead.id) == []
    opened = await planned(bookings, wanted(None))
    await bookings.time.go_on(HOUR)
    async with bookings.world.uow() as uow:
        gone = await end_window(uow, root, opened.id)
    assert gone.status is WindowStatus.ENDED
    assert await bookings.taken(opened.id) == [(START, START + HOUR, True)] * 2
    assert set((await states(bookings)).values()) == {GpuState.FREE}
    with pytest.raises(AlreadyFinalError):
        async with bookings.world.uow() as uow:
            await end_window(uow, root, opened.id)
    with pytest.raises(NotFoundError):
        async with bookings.world.uow() as uow:
            await end_window(uow, root, "mnt-never")


async def test_what_makes_no_sense_is_refused(bookings: BookingWorld) -> None:
    with pytest.raises(NotFoundError, match="n7"):
        await planned(bookings, wanted(nodes=["a", "n7"]))
    with pytest.raises(NotFoundError, match="a:9"):
        await planned(bookings, wanted(gpus=[{"node": "a", "index": 9}]))
    with pytest.raises(LimitExceededError, match="past"):
        await planned(bookings, wanted(START - HOUR))
    with pytest.raises(LimitExceededError):
        await planned(bookings, wanted(START + timedelta(days=401)))
    with pytest.raises(ForbiddenError):
        async with bookings.world.uow() as uow:
            await plan_window(uow, bookings.world.who, wanted(), bookings.ids, GRACE)


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
