"""Ending pods that people made, on a real database whose clock is set; the cluster does what a test says."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from reservation_core.domain.model import ForeignPod, GpuCondition
from reservation_core.domain.pods.pod_endings import EndRules, GuardedPod
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.pods.guarded_pods import EndRefusedError
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.pods.end_pods import PodEnder, PodEndReport, PodEndRules
from tests.integration.reservation_core.usecases.booking_world import GRACE, HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.pods.pod_lab import NINE, POD, Lab


async def test_a_booked_pod_is_warned_and_ends_with_its_booking(lab: Lab) -> None:
    made = await lab.bookings.booked(NINE, 2 * HOUR)
    await lab.at(NINE)
    lab.pods.put(replace(POD, booking_id=made.id, marked_end=NINE + 2 * HOUR))
    assert await lab.at(NINE + MINUTE) == PodEndReport()
    for left in (30, 15, 5):
        assert await lab.at(NINE + 2 * HOUR - left * MINUTE) == PodEndReport(warned=1)
        assert await lab.look() == PodEndReport()
    assert await lab.at(NINE + 2 * HOUR) == PodEndReport(asked=1)
    assert lab.pods.asked == [("evict", "u-1", 30)]
    assert [reason for _, reason, _ in lab.pods.told] == ["EndingSoon"] * 3 + ["Ending"]
    assert await lab.look() == PodEndReport()
    [asked] = await lab.records("pod_end_asked")
    assert (asked["about"], asked["namespace"], asked["name"], asked["uid"]) == (made.id, "lab", "train-0", "u-1")
    assert len(await lab.records("pod_end_warned")) == 3


async def test_a_pod_counts_as_use_of_its_booking_until_it_is_gone(lab: Lab) -> None:
    lab.bookings.keeping = GRACE
    made = await lab.bookings.booked(NINE, 4 * HOUR)
    await lab.at(NINE)
    lab.pods.put(replace(POD, booking_id=made.id, began=NINE + MINUTE))
    await lab.at(NINE + 2 * MINUTE)
    await lab.at(NINE + HOUR)
    assert await lab.uses() == [(made.id, "u-1", NINE + MINUTE, None)]
    assert (await lab.bookings.booking(made.id)).used_at == NINE + MINUTE
    lab.pods.pods.clear()
    await lab.at(NINE + 2 * HOUR)
    assert await lab.uses() == [(made.id, "u-1", NINE + MINUTE, NINE + 2 * HOUR)]
    assert await lab.bookings.rows("SELECT 1 FROM pod_endings") == []


async def test_a_pod_that_has_finished_used_its_booking_until_then(lab: Lab) -> None:
    made = await lab.bookings.booked(NINE, 4 * HOUR)
    await lab.at(NINE)
    lab.pods.put(replace(POD, booking_id=made.id))
    await lab.at(NINE + MINUTE)
    lab.pods.put(replace(POD, booking_id=made.id, finished_at=NINE + 30 * MINUTE))
    await lab.at(NINE + HOUR)
    assert await lab.uses() == [(made.id, "u-1", NINE, NINE + 30 * MINUTE)]


async def test_a_pod_that_was_made_after_somebody_else_listed_is_not_gone(lab: Lab) -> None:
    made = await lab.bookings.booked(NINE, 4 * HOUR)
    await lab.at(NINE)
    await lab.ender.begin()
    listed = await lab.pods.list_pods()
    lab.pods.put(replace(POD, booking_id=made.id))
    other = PodEnder(lab.bookings.world.uow, lab.pods, PodEndRules())
    await lab.bookings.time.set(NINE + MINUTE)
    await other.begin()
    await other.run(await lab.pods.list_pods())
    await lab.ender.run(listed)
    assert (await lab.uses())[0][3] is None


async def test_a_longer_booking_is_written_on_the_pod_and_a_cancelled_one_ends_it(lab: Lab) -> None:
    made = await lab.bookings.booked(NINE, HOUR)
    await lab.at(NINE)
    lab.pods.put(replace(POD, booking_id=made.id, marked_end=NINE + 30 * MINUTE))
    await lab.look()
    assert lab.pods.pods["u-1"].marked_end == NINE + HOUR
    await lab.bookings.time.set(NINE + MINUTE)
    async with lab.bookings.world.uow() as uow:
        await cancel_booking(uow, lab.bookings.world.who, made.id, "this", None)
    assert await lab.look() == PodEndReport(asked=1)
    [asked] = await lab.records("pod_end_asked")
    assert "cancelled" in asked["why"]


async def test_what_a_pod_says_later_of_itself_wins_nothing(lab: Lab) -> None:
    lab.pods.put(replace(POD, marked_end=NINE + HOUR))
    await lab.at(NINE)
    lab.pods.put(replace(POD, marked_end=None, owner=None))
    await lab.look()
    assert lab.pods.pods["u-1"].marked_end == NINE + HOUR
    lab.restart()
    assert await lab.at(NINE + HOUR) == PodEndReport(asked=1)


async def test_pods_of_other_namespaces_are_left_alone(lab: Lab) -> None:
    lab.pods.put(replace(POD, marked_end=NINE - HOUR, enforced=False))
    assert await lab.at(NINE) == PodEndReport()
    assert lab.pods.asked == []


async def test_a_budget_keeps_a_pod_for_ten_minutes_and_then_it_is_told_and_not_forced(lab: Lab) -> None:
    lab.pods.kept = {"u-1"}
    lab.pods.put(replace(POD, marked_end=NINE))
    assert await lab.at(NINE) == PodEndReport(asked=1, kept=1)
    lab.restart()
    assert await lab.at(NINE + 9 * MINUTE) == PodEndReport(kept=1)
    assert await lab.records("pod_end_refused") == []
    for minute in (10, 11):
        await lab.at(NINE + minute * MINUTE)
    assert {what for what, _, _ in lab.pods.asked} == {"evict"}
    assert len(await lab.records("pod_end_refused")) == 1
    assert [reason for _, reason, _ in lab.pods.told] == ["Ending", "EndingRefused"]
    lab.pods.kept.clear()
    await lab.at(NINE + 12 * MINUTE)
    assert lab.pods.pods["u-1"].leaving


async def test_a_budget_is_overridden_where_that_is_set(bookings: BookingWorld) -> None:
    lab = Lab(bookings, PodEndRules(EndRules(override_budgets=True)))
    lab.pods.kept = {"u-1"}
    lab.pods.put(replace(POD, marked_end=NINE))
    await lab.at(NINE)
    await lab.at(NINE + 10 * MINUTE)
    assert [what for what, _, _ in lab.pods.asked] == ["evict", "delete"]


async def test_who_is_killed_before_the_eviction_has_noted_it_and_the_next_one_does_it(lab: Lab) -> None:
    """Each step is committed before it is taken; a kill in between costs a look and no second line."""
    lab.pods.put(replace(POD, marked_end=NINE))

    def killed(_: GuardedPod) -> None:
        raise asyncio.CancelledError

    lab.pods.before = killed
    with pytest.raises(asyncio.CancelledError):
        await lab.at(NINE)
    assert len(await lab.records("pod_end_asked")) == 1
    lab.pods.before = lambda _: None
    lab.restart()
    await lab.look()
    assert lab.pods.pods["u-1"].leaving
    assert len(await lab.records("pod_end_asked")) == 1


async def test_many_at_once_note_it_once(lab: Lab) -> None:
    lab.pods.put(*(replace(POD, uid=f"u-{n}", name=f"p-{n}", marked_end=NINE) for n in range(4)))
    await lab.bookings.at(NINE)
    enders = [PodEnder(lab.bookings.world.uow, lab.pods, PodEndRules()) for _ in range(4)]
    pods = await lab.pods.list_pods()
    reports = await asyncio.gather(*(ender.run(pods) for ender in enders))
    assert sum(report.asked for report in reports) == 4
    assert len(await lab.records("pod_end_asked")) == 4


@pytest.mark.parametrize(
    ("problem", "left"), [(EndRefusedError("no"), ["u-0"]), (ClusterUnavailableError("away"), None)]
)
async def test_one_that_cannot_be_ended_does_not_keep_others(
    lab: Lab, problem: Exception, left: list[str] | None
) -> None:
    """Of a cluster that does not answer the rest of a namespace is not asked, but decided on anew; others are."""

    def fails(pod: GuardedPod) -> None:
        if pod.uid == "u-0":
            raise problem

    lab.pods.before = fails
    lab.pods.put(*(replace(POD, uid=f"u-{n}", name=f"p-{n}", marked_end=NINE) for n in range(3)))
    lab.pods.put(replace(POD, uid="other", namespace="other", marked_end=NINE))
    assert await lab.at(NINE) == PodEndReport(asked=4, failed=1)
    assert [uid for uid, pod in lab.pods.pods.items() if not pod.leaving] == (left or ["u-0", "u-1", "u-2"])
    lab.pods.before = lambda _: None
    await lab.look()
    assert all(pod.leaving for pod in lab.pods.pods.values())


async def test_the_machines_own_clock_does_not_matter(lab: Lab) -> None:
    """It goes on and back by days; what counts is the database's."""
    lab.pods.put(replace(POD, marked_end=NINE + HOUR))
    await lab.at(NINE)
    for days in (-9, 9):
        lab.bookings.world.clock.at = NINE + timedelta(days=days)
        assert await lab.look() == PodEndReport()


async def test_preemptible_pods_go_for_a_booking_that_is_about_to_begin_and_no_more_than_needed(lab: Lab) -> None:
    """Node a has two cards, of which one is booked from ten."""
    made = await lab.bookings.booked(NINE + HOUR, node="a")
    loose = replace(POD, preemptible=True, owner="bob")
    lab.pods.put(
        replace(loose, uid="old", name="old", began=NINE - 9 * HOUR),
        replace(loose, uid="young", name="young", began=NINE),
        replace(loose, uid="elsewhere", name="elsewhere", node="b", began=NINE),
        replace(loose, uid="waiting", name="waiting", node=None, began=None),
    )
    assert await lab.at(NINE + 58 * MINUTE) == PodEndReport()
    assert await lab.at(NINE + 59 * MINUTE) == PodEndReport(asked=1)
    assert [uid for _, uid, _ in lab.pods.asked] == ["young"]
    assert await lab.records("pod_end_asked") == []
    [asked] = await lab.records("pod_displaced")
    assert asked["about"] == "pod:lab/young"
    assert made.id in asked["why"]
    assert await lab.look() == PodEndReport()
    del lab.pods.pods["young"]
    lab.pods.put(replace(POD, uid="booked", name="booked", booking_id=made.id, owner="alice"))
    assert await lab.at(NINE + HOUR) == PodEndReport()
    assert [uid for _, uid, _ in lab.pods.asked] == ["young"]


async def test_what_is_leaving_anyway_is_counted_on(lab: Lab) -> None:
    await lab.bookings.booked(NINE, node="a")
    loose = replace(POD, preemptible=True, owner="bob")
    lab.pods.put(
        replace(loose, uid="leaves", name="leaves", priority=1000, leaving=True),
        replace(loose, uid="stays", name="stays"),
    )
    await lab.at(NINE)
    assert lab.pods.asked == []


async def test_of_mapped_pods_those_go_that_are_on_the_bookings_cards(lab: Lab) -> None:
    made = await lab.bookings.booked(NINE, node="a")
    [row] = await lab.bookings.rows(
        "SELECT g.index FROM allocations a JOIN gpus g ON g.id = a.gpu_id WHERE a.reservation_id = :id", id=made.id
    )
    taken = int(row["index"])
    loose = replace(POD, preemptible=True, owner="bob")
    lab.pods.put(
        replace(loose, uid="on-it", name="on-it", cards=(taken,), priority=1000),
        replace(loose, uid="beside", name="beside", cards=(1 - taken,), priority=-1000),
    )
    await lab.at(NINE)
    assert [uid for _, uid, _ in lab.pods.asked] == ["on-it"]


async def test_a_card_on_which_a_preemptible_pod_was_seen_is_still_the_bookings(lab: Lab) -> None:
    """Nobody else is given it, and once the pod is gone and was looked for, it is as any card."""
    made = await lab.bookings.booked(NINE, 4 * HOUR, node="a", gpus=2)
    world = lab.bookings.world
    async with world.uow() as uow:
        nodes = await world.cluster.list_nodes()
        await uow.inventory.update(nodes, [ForeignPod("a", "lab/loose", 1, (0,))], world.clock.now())
    lab.pods.put(replace(POD, preemptible=True, owner="bob", cards=(0,)))
    await lab.at(NINE)
    assert [uid for _, uid, _ in lab.pods.asked] == ["u-1"]
    assert len(await lab.bookings.taken(made.id)) == 2
    async with world.uow() as uow:
        await uow.inventory.update(nodes, [], world.clock.now())
    rows = await lab.bookings.rows("SELECT DISTINCT condition FROM gpus")
    assert [row["condition"] for row in rows] == [GpuCondition.USABLE.value]
