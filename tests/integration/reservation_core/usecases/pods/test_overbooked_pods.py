"""Pods that were let in at one moment on the same cards of a booking: the youngest go, and their owner is told."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from reservation_core.usecases.pods.end_pods import PodEndReport
from reservation_core.usecases.pods.schedulability import JudgedPod, schedulability
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE
from tests.integration.reservation_core.usecases.pods.pod_lab import NINE, POD, Lab

SECOND = timedelta(seconds=1)


async def told(lab: Lab) -> list[str]:
    """The kinds of the events that are to be told to somebody."""
    found = await lab.bookings.rows(
        "SELECT e.kind FROM pgmq.q_notifications q JOIN events e ON e.id = (q.message ->> 'event')::bigint"
        " ORDER BY q.msg_id"
    )
    return [row["kind"] for row in found]


async def listening(lab: Lab, user: str) -> None:
    """A user who is told of things."""
    async with lab.bookings.engine.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO notice_targets (id, user_id, channel, address, created_at, verified_at)"
                " SELECT 'ntg-' || name, id, 'slack', 'https://h.test', now(), now() FROM users WHERE name = :name"
            ),
            {"name": user},
        )


async def test_of_pods_that_were_let_in_at_once_only_as_many_stay_as_have_room(lab: Lab) -> None:
    made = await lab.bookings.booked(NINE, 4 * HOUR, node="a", gpus=2)
    await lab.at(NINE)
    await listening(lab, "alice")
    service = replace(await lab.bookings.root())

    async def let_in() -> bool:
        async with lab.bookings.world.uow() as uow:
            verdict = await schedulability(uow, service, "alice", "h100", 1, NINE, JudgedPod())
        return verdict.booking_id == made.id

    assert all(await asyncio.gather(*(let_in() for _ in range(5))))  # as a webhook asks for each
    racing = [
        replace(POD, uid=f"u-{number}", name=f"train-{number}", booking_id=made.id, began=NINE + number * SECOND)
        for number in (3, 1, 4, 0, 2)
    ]
    lab.pods.put(*racing)
    assert await lab.at(NINE + MINUTE) == PodEndReport(asked=3)
    assert {uid for _, uid, _ in lab.pods.asked} == {"u-2", "u-3", "u-4"}
    assert {name for name, reason, _ in lab.pods.told if reason == "Ending"} == {"train-2", "train-3", "train-4"}
    records = await lab.records("pod_displaced")
    assert {record["name"] for record in records} == {"train-2", "train-3", "train-4"}
    assert {record["about"] for record in records} == {made.id}
    assert "has 2 GPUs" in records[0]["why"]
    assert (await told(lab)).count("pod_displaced") == 3
    for _ in range(2):
        assert await lab.look() == PodEndReport()
    assert await lab.at(NINE + HOUR) == PodEndReport()


async def test_whoever_fits_and_whoever_leaves_is_left_alone(lab: Lab) -> None:
    made = await lab.bookings.booked(NINE, 4 * HOUR, node="a", gpus=2)
    mine = replace(POD, booking_id=made.id)
    lab.pods.put(
        mine,
        replace(mine, uid="leaves", name="leaves", leaving=True),
        replace(mine, uid="over", name="over", finished_at=NINE),
        replace(mine, uid="pending", name="pending", node=None, began=None),
        replace(mine, uid="loose", name="loose", preemptible=True, node="b"),
        replace(mine, uid="second", name="second", began=NINE + SECOND),
    )
    assert await lab.at(NINE + MINUTE) == PodEndReport()
    bound = replace(mine, uid="pending", name="pending", node="b", began=None)
    lab.pods.put(bound)
    assert await lab.look() == PodEndReport(asked=1)
    assert [uid for _, uid, _ in lab.pods.asked] == ["pending"]


async def test_pods_with_a_map_may_share_their_cards(lab: Lab) -> None:
    made = await lab.bookings.booked(NINE, 4 * HOUR, node="a", gpus=1)
    shares = replace(POD, booking_id=made.id, cards=(0,))
    lab.pods.put(shares, replace(shares, uid="u-2", name="train-1"))
    assert await lab.at(NINE + MINUTE) == PodEndReport()
    lab.pods.put(replace(shares, uid="u-3", name="train-2", cards=(1,), began=NINE + SECOND))
    assert await lab.look() == PodEndReport(asked=1)
    assert [uid for _, uid, _ in lab.pods.asked] == ["u-3"]


@pytest.mark.parametrize(("began", "goes"), [(NINE - SECOND, False), (NINE + HOUR, True)])
async def test_a_job_in_the_booking_counts_as_of_when_it_began(lab: Lab, began: object, goes: bool) -> None:
    """Its cards are the ledger's; pods that were there before it stay."""
    made = await lab.bookings.booked(NINE, 4 * HOUR, node="a", gpus=2)
    await lab.at(NINE)
    await lab.bookings.world.started(booking_id=made.id)
    lab.pods.put(replace(POD, booking_id=made.id, gpus=2, began=began))  # type: ignore[arg-type]
    assert await lab.at(NINE + HOUR + MINUTE) == PodEndReport(asked=int(goes))


async def test_the_owner_of_a_preemptible_pod_is_told(lab: Lab) -> None:
    await lab.bookings.booked(NINE, node="a", gpus=2)
    await lab.bookings.person("bob")
    await listening(lab, "bob")
    lab.pods.put(
        replace(POD, preemptible=True, owner="bob"),
        replace(POD, uid="u-2", name="nobodys", preemptible=True, owner="who is that"),
    )
    assert await lab.at(NINE) == PodEndReport(asked=2)
    assert await told(lab) == ["pod_displaced"]
    [row] = await lab.bookings.rows("SELECT (message ->> 'event')::bigint AS event FROM pgmq.q_notifications")
    async with lab.bookings.world.uow() as uow:
        found = await uow.notices.occasion(row["event"])
    assert found is not None
    occurrence, about = found
    assert about is None
    assert (occurrence.kind, occurrence.data["name"]) == ("ended", "train-0")
    assert await lab.look() == PodEndReport()
    assert await told(lab) == ["pod_displaced"]
