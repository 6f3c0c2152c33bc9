"""Pods of others that use bookings, on a real database whose clock is set."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.pods.pod_reports import Judged, PodReport, ReportOutcome
from reservation_core.domain.policy.nouns import UsageBy
from reservation_core.domain.policy.usage import GpuTime
from reservation_core.domain.statuses import BookingStatus, Role
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.pods.report_pods import report_pods
from reservation_core.usecases.pods.schedulability import JudgedPod, schedulability
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import GRACE, HOUR, MINUTE, BookingWorld
from tests.waiting import PATIENCE_S

NINE = START + 24 * HOUR
POD = PodReport(user="alice", namespace="lab", name="train-0", uid="u-1", gpus=1)


async def report(bookings: BookingWorld, *pods: PodReport) -> list[Judged]:
    """What a service sees."""
    async with bookings.world.uow() as uow:
        return await report_pods(uow, replace(await bookings.root(), role=Role.SERVICE), pods)


async def rows(bookings: BookingWorld) -> list[dict[str, Any]]:
    return await bookings.rows("SELECT booking_id, pod_uid, admitted_at, ended_at FROM admissions ORDER BY admitted_at")


async def usage(bookings: BookingWorld, start: datetime, end: datetime) -> GpuTime:
    async with bookings.world.uow() as uow:
        return (await uow.usage.report(UsageBy.USER, start, end, None, end)).total


def gpu_hours(time: GpuTime) -> tuple[Decimal, Decimal, Decimal, Decimal]:
    """Held, used, idle, wasted."""
    return time.held / 3600, time.used / 3600, time.idle / 3600, time.wasted / 3600


async def test_a_booking_under_which_a_pod_runs_is_not_given_up(bookings: BookingWorld) -> None:
    bookings.keeping = GRACE
    made = await bookings.booked(NINE, 4 * HOUR)
    await bookings.at(NINE)
    await bookings.time.go_on(5 * MINUTE)
    [judged] = await report(bookings, replace(POD, since=NINE + 2 * MINUTE))
    assert (judged.outcome, judged.booking_id, judged.until) == (ReportOutcome.RECORDED, made.id, NINE + 4 * HOUR)
    await bookings.look()
    assert (await bookings.booking(made.id)).used_at == NINE + 2 * MINUTE
    await bookings.at(NINE + 2 * HOUR)
    assert (await bookings.booking(made.id)).status is BookingStatus.ACTIVE
    kinds = await bookings.kinds(made.id)
    assert "no_show_warning" not in kinds
    assert kinds.count("pod_admitted") == 1
    told = await bookings.told(made.id, "pod_admitted")
    assert (told["namespace"], told["name"], told["uid"], told["gpus"]) == ("lab", "train-0", "u-1", 1)


async def test_a_mere_question_is_no_use(bookings: BookingWorld) -> None:
    bookings.keeping = GRACE
    made = await bookings.booked(NINE, 4 * HOUR)
    for minute in range(46):
        await bookings.at(NINE + minute * MINUTE)
        async with bookings.world.uow() as uow:
            await schedulability(uow, await bookings.root(), "alice", "h100", 1, bookings.time.at)
    row = await bookings.booking(made.id)
    assert (row.status, row.used_at) == (BookingStatus.RELEASED, None)


async def test_a_pod_that_came_before_its_booking_began_uses_it_from_its_beginning(bookings: BookingWorld) -> None:
    """What watches the cluster may see it before anybody has looked whether the booking has begun."""
    bookings.keeping = GRACE
    made = await bookings.booked(NINE)
    await bookings.time.set(NINE)
    [judged] = await report(bookings, replace(POD, since=NINE - HOUR))
    assert judged.outcome is ReportOutcome.RECORDED
    await bookings.at(NINE + MINUTE)
    assert (await bookings.booking(made.id)).used_at == NINE


async def test_the_same_reports_from_several_at_once_are_recorded_once(bookings: BookingWorld) -> None:
    """The second compares its reports with what the first has recorded, which commits while the second waits."""
    made = await bookings.booked(NINE)
    await bookings.at(NINE)
    pods = [replace(POD, uid=f"u-{n}") for n in range(3)]
    async with bookings.world.uow() as uow:
        first = await report_pods(uow, await bookings.root(), pods)
        reporting = asyncio.create_task(report(bookings, *pods))
        await blocked(bookings)
    second = await reporting
    assert {judged.outcome for judged in first} == {ReportOutcome.RECORDED}
    assert {judged.outcome for judged in second} == {ReportOutcome.UNCHANGED}
    assert [row["pod_uid"] for row in await rows(bookings)] == ["u-0", "u-1", "u-2"]
    assert (await bookings.kinds(made.id)).count("pod_admitted") == 3


@pytest.mark.parametrize("first", ["report", "release"])
async def test_given_up_while_a_pod_is_reported(bookings: BookingWorld, first: str) -> None:
    """Whichever is first: it is kept and used, or given up and the pod is nobody's use from then on."""
    bookings.keeping = GRACE
    made = await bookings.booked(NINE, 4 * HOUR)
    await bookings.at(NINE)
    await bookings.at(NINE + 15 * MINUTE)
    await bookings.time.set(NINE + 30 * MINUTE)
    if first == "report":
        async with bookings.world.uow() as uow:
            await report_pods(uow, await bookings.root(), [POD])
            looking = asyncio.create_task(bookings.look())
            await blocked(bookings)
        await looking
        row = await bookings.booking(made.id)
        assert (row.status, row.used_at) == (BookingStatus.ACTIVE, NINE + 30 * MINUTE)
    else:
        await bookings.look()
        [judged] = await report(bookings, POD)
        assert judged.outcome is ReportOutcome.NO_BOOKING
        assert (await bookings.booking(made.id)).status is BookingStatus.RELEASED


async def blocked(bookings: BookingWorld) -> None:
    """Until somebody waits for a row."""
    async with asyncio.timeout(PATIENCE_S):
        while not await bookings.rows("SELECT 1 FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0)


async def test_what_ended_unseen_in_a_released_booking_is_used_and_not_wasted(bookings: BookingWorld) -> None:
    """The watcher of the cluster was away: the booking is gone, but what was used of it is told."""
    bookings.keeping = GRACE
    made = await bookings.booked(NINE, 4 * HOUR, gpus=2)
    for minutes in (0, 15, 30):
        await bookings.at(NINE + minutes * MINUTE)
    assert (await bookings.booking(made.id)).status is BookingStatus.RELEASED
    late = replace(POD, since=NINE + 10 * MINUTE, ended_at=NINE + 25 * MINUTE)
    assert gpu_hours(await usage(bookings, NINE, NINE + HOUR)) == (1, 0, 1, 1)
    await bookings.at(NINE + HOUR)
    [judged] = await report(bookings, late)
    assert (judged.outcome, judged.booking_id) == (ReportOutcome.RECORDED, made.id)
    assert gpu_hours(await usage(bookings, NINE, NINE + HOUR)) == (1, Decimal("0.25"), Decimal("0.75"), 0)


async def test_the_time_of_pods_is_used_time(bookings: BookingWorld) -> None:
    """Two pods of others on a booking of two cards: at no moment is more used than is booked."""
    await bookings.booked(NINE, 4 * HOUR, gpus=2)
    await bookings.at(NINE)
    await bookings.time.set(NINE + 3 * HOUR)
    await report(
        bookings,
        replace(POD, since=NINE, ended_at=NINE + 2 * HOUR),
        replace(POD, uid="u-2", gpus=2, since=NINE + HOUR),
    )
    # one card for an hour, both from then on
    assert gpu_hours(await usage(bookings, NINE, NINE + 3 * HOUR)) == (6, 5, 1, 0)
    # it runs on, as far as is known, until the booking is over
    await bookings.at(NINE + 5 * HOUR)
    assert gpu_hours(await usage(bookings, NINE, NINE + 5 * HOUR)) == (8, 7, 1, 0)


async def test_a_pod_goes_on_in_its_owners_next_booking(bookings: BookingWorld) -> None:
    bookings.keeping = GRACE
    first, second = await bookings.booked(NINE), await bookings.booked(NINE + HOUR, 3 * HOUR)
    await bookings.at(NINE)
    await report(bookings, POD)
    await bookings.at(NINE + HOUR)
    await bookings.at(NINE + HOUR + 10 * MINUTE)
    await report(bookings, POD)
    assert [(row["booking_id"], row["admitted_at"], row["ended_at"]) for row in await rows(bookings)] == [
        (first.id, NINE, NINE + HOUR),
        (second.id, NINE + HOUR, None),
    ]
    await bookings.look()
    assert (await bookings.booking(second.id)).used_at == NINE + HOUR


async def test_who_is_refused(bookings: BookingWorld) -> None:
    made = await bookings.booked(NINE)
    async with bookings.world.uow() as uow:
        with pytest.raises(ForbiddenError):
            await report_pods(uow, bookings.world.who, [POD])
    assert (await report(bookings, replace(POD, booking_id=made.id)))[0].outcome is ReportOutcome.NOT_IN_SLOT
    await bookings.at(NINE)
    assert (await report(bookings, replace(POD, user="nobody")))[0].outcome is ReportOutcome.NO_BOOKING
    async with bookings.world.uow() as uow:
        await cancel_booking(uow, bookings.world.who, made.id, "this", None)
    await bookings.time.go_on(timedelta(seconds=1))
    assert (await report(bookings, POD))[0].outcome is ReportOutcome.NO_BOOKING
    assert await rows(bookings) == []


async def test_what_runs_in_a_booking_leaves_less_for_another_pod(bookings: BookingWorld) -> None:
    """A question whether the user may at all is answered as ever; a question for a pod is answered with what other pods
    leave it.
    """
    made = await bookings.booked(NINE, 4 * HOUR, gpus=2)
    await bookings.at(NINE)
    await report(bookings, POD)

    async def may(gpus: int, pod: JudgedPod | None) -> tuple[bool, str]:
        async with bookings.world.uow() as uow:
            verdict = await schedulability(uow, await bookings.root(), "alice", "h100", gpus, bookings.time.at, pod)
        return verdict.schedulable, verdict.reason

    new, same, other = JudgedPod(), JudgedPod(POD.uid), JudgedPod("u-2")
    assert [(await may(2, pod_uid))[0] for pod_uid in (None, new, same, other)] == [True, False, True, False]
    assert [(await may(1, pod_uid))[0] for pod_uid in (None, new, same, other)] == [True] * 4
    assert "1 are in use" in (await may(2, new))[1]
    # So do its jobs, until their pods are gone.
    job = await bookings.world.submitted(booking_id=made.id)
    await bookings.rows(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, booking_id) "
        "VALUES (:j, 1, :gpu, 0, tstzrange(:now, :end), true, :now, :b) RETURNING id",
        j=job, gpu=made.cards[0].gpu_id, now=NINE, end=NINE + HOUR, b=made.id,
    )  # fmt: skip
    assert [(await may(1, pod_uid))[0] for pod_uid in (None, new, same)] == [True, False, True]
    await report(bookings, replace(POD, ended_at=NINE + MINUTE))
    assert (await may(1, new))[0]


async def test_the_nodes_of_a_booking_are_those_with_room_for_the_pod(bookings: BookingWorld) -> None:
    """Two cards on each of two nodes: what runs on one leaves less of it for the next pod."""
    made = await bookings.booked(NINE, 4 * HOUR, gpus=2, nodes=2)
    await bookings.at(NINE)
    one, other = both = tuple(sorted({card.node for card in made.cards}))

    async def nodes(gpus: int, pod: JudgedPod | None) -> tuple[str, ...] | None:
        async with bookings.world.uow() as uow:
            verdict = await schedulability(uow, await bookings.root(), "alice", "h100", gpus, bookings.time.at, pod)
        return verdict.nodes

    new = JudgedPod()
    assert [await nodes(gpus, None) for gpus in (1, 2, 4)] == [both] * 3
    assert [await nodes(gpus, new) for gpus in (1, 2, 3)] == [both, both, ()]
    # A pod of which nobody said where it is counts in all; one whose node is known, there.
    await report(bookings, POD)
    assert [await nodes(gpus, new) for gpus in (1, 2, 3, 4)] == [both, both, (), None]
    await report(bookings, replace(POD, ended_at=NINE))
    first, second = replace(POD, uid="u-2", node=one), replace(POD, uid="u-3", gpus=2, node=other)
    await report(bookings, first)
    assert [await nodes(gpus, new) for gpus in (1, 2, 3)] == [both, (other,), ()]
    assert [await nodes(2, JudgedPod(uid)) for uid in ("u-2", "u-3")] == [both, (other,)]
    await report(bookings, second)
    assert [await nodes(gpus, new) for gpus in (1, 2)] == [(one,), None]
    await report(bookings, *(replace(listed_report, ended_at=NINE) for listed_report in (first, second)))
    assert await nodes(2, new) == both
    # So does a job.
    job = await bookings.world.submitted(booking_id=made.id)
    card = next(card.gpu_id for card in made.cards if card.node == other)
    await bookings.rows(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, booking_id) "
        "VALUES (:j, 1, :gpu, 0, tstzrange(:now, :end), true, :now, :b) RETURNING id",
        j=job, gpu=card, now=NINE, end=NINE + HOUR, b=made.id,
    )  # fmt: skip
    assert [await nodes(gpus, new) for gpus in (1, 2)] == [both, (one,)]


async def test_a_booking_with_a_node_for_the_pod_goes_before_one_that_lasts_longer(bookings: BookingWorld) -> None:
    longer, shorter = await bookings.booked(NINE, 4 * HOUR, gpus=2), await bookings.booked(NINE, gpus=2)
    await bookings.at(NINE)

    async def answer(gpus: int) -> tuple[str | None, tuple[str, ...] | None]:
        async with bookings.world.uow() as uow:
            verdict = await schedulability(
                uow, await bookings.root(), "alice", None, gpus, bookings.time.at, JudgedPod()
            )
        return verdict.booking_id, verdict.nodes

    assert await answer(2) == (longer.id, (longer.cards[0].node,))
    # A pod that was there before the booking began may still be on one of its cards.
    await bookings.rows(
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
        "VALUES (:j, 1, :gpu, 0, tstzrange(:start, :end), true, :start) RETURNING id",
        j=await bookings.world.submitted(), gpu=longer.cards[0].gpu_id, start=NINE - HOUR, end=NINE,
    )  # fmt: skip
    assert await answer(1) == (longer.id, (longer.cards[0].node,))
    assert await answer(2) == (shorter.id, (shorter.cards[0].node,))
    await bookings.at(NINE + HOUR)
    assert await answer(2) == (longer.id, ())
