"""Maintenance windows on a real database whose clock is set."""

from datetime import timedelta

import pytest

from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.windows import Fate, WindowStatus
from reservation_core.domain.errors import (
    AlreadyFinalError,
    CalendarConflictError,
    ForbiddenError,
    LimitExceededError,
    NotFoundError,
)
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import BookingReason, BookingStatus, GpuState, JobStatus
from reservation_core.usecases.nodes.maintenance import (
    end_window,
    keep_windows,
    plan_window,
    view_window,
)
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, BookingWorld
from tests.integration.reservation_core.usecases.bookings.test_keep_bookings import running_within, within
from tests.integration.reservation_core.usecases.nodes.maintenance_world import (
    EVERYWHERE,
    GRACE,
    NINE,
    fates,
    places,
    planned,
    previewed,
    rest_of,
    slot_of,
    states,
    wanted,
)
from tests.integration.reservation_core.usecases.world import pod


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
