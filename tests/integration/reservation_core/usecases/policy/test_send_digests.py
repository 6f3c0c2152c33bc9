"""The weekly digest of projects: to each member once, also with two leaders, and with no figure that nobody knows."""

import asyncio
from datetime import datetime, timedelta

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind
from reservation_core.domain.statuses import Role
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.people import notice_targets
from reservation_core.usecases.policy import projects
from reservation_core.usecases.policy.send_digests import send_digests
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import BookingWorld

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NEXT_MONDAY = START.replace(hour=2) + 6 * DAY  # START is a Tuesday
WEEK = START.replace(hour=0) - DAY


async def member(bookings: BookingWorld, name: str) -> Principal:
    """A member of the project `vision` who is notified at a webhook."""
    world, root = bookings.world, await bookings.root()
    who = world.who if name == "alice" else await bookings.person(name, Role.USER)
    async with world.uow() as uow:
        if await uow.projects.get("vision") is None:
            await projects.create(uow, root, "vision", None, world.clock.now())
        await projects.add_member(uow, root, "vision", name, world.clock.now())
        await notice_targets.create(
            uow, who, channel=NoticeChannel.WEBHOOK, address="https://hooks.example/x", name=None, ids=RandomIds(),
            now=world.clock.now(),
        )  # fmt: skip
    return who


async def it_is(bookings: BookingWorld, at: datetime) -> None:
    await bookings.time.set(at)
    bookings.world.clock.at = at


async def told(bookings: BookingWorld) -> list[str]:
    """The names of users that are notified of digests."""
    rows = await bookings.world.sql(
        "SELECT u.name FROM pgmq.q_notifications q JOIN notice_targets t ON t.id = q.message ->> 'target' "
        "JOIN users u ON u.id = t.user_id JOIN events e ON e.id = CAST(q.message ->> 'event' AS bigint) "
        "WHERE e.kind = 'project_digest' ORDER BY u.name"
    )
    return list(rows.scalars())


async def had_two_hours(bookings: BookingWorld) -> None:
    """A job for the project had two GPUs for two hours, ran in one of these, and used half of them."""
    world = bookings.world
    job = await world.ran(gpus=2, duration=7200)
    await world.sql("UPDATE reservations SET project = 'vision' WHERE id = :id", id=job)
    await world.sql(
        "UPDATE allocations SET ran_from = CAST(:start AS timestamptz) + interval '1 hour', held = false, "
        "released_at = CAST(:end AS timestamptz), "
        "during = tstzrange(CAST(:start AS timestamptz), CAST(:end AS timestamptz))",
        start=START, end=START + 2 * HOUR,
    )  # fmt: skip
    await world.sql(
        "UPDATE reservations SET status = 'succeeded', finished_at = :end WHERE id = :id", end=START + 2 * HOUR, id=job
    )
    await world.sql(
        "INSERT INTO gpu_use_sums SELECT :at, :user, 'vision', 'h100', 720, 360, 2097152",
        at=START,
        user=world.who.user_id,
    )
    await world.sql("UPDATE gpu_use_state SET minutes_until = :at, hours_until = :at", at=NEXT_MONDAY)


async def test_each_member_is_notified_once_also_with_two_leaders(bookings: BookingWorld) -> None:
    await member(bookings, "alice")
    await member(bookings, "bob")
    silent = await member(bookings, "carol")
    async with bookings.world.uow() as uow:
        stored = await uow.notices.preferences(silent.user_id)
        kinds = dict(stored.kinds) | {NoticeKind.DIGEST: frozenset()}
        await uow.notices.prefer(silent.user_id, kinds)
    await had_two_hours(bookings)
    await it_is(bookings, NEXT_MONDAY - HOUR)
    await send_digests(bookings.world.uow)  # of the week before, in which nothing was
    assert await told(bookings) == []
    await it_is(bookings, NEXT_MONDAY)
    assert sorted(await asyncio.gather(*(send_digests(bookings.world.uow) for _ in range(2)))) == [0, 1]
    await it_is(bookings, NEXT_MONDAY + 3 * DAY)
    assert await send_digests(bookings.world.uow) == 0
    assert await told(bookings) == ["alice", "bob"]
    [row] = await bookings.rows("SELECT id, subject, data FROM events WHERE kind = 'project_digest'")
    assert (row["subject"], row["data"]) == (
        "project:vision",
        {
            "week": f"{WEEK:%Y-%m-%d}", "held_gpu_hours": 4.0, "used_gpu_hours": 2.0, "idle_gpu_hours": 2.0,
            "wasted_gpu_hours": 0.0, "utilised": 0.5, "memory_peak": 2**31, "enough_gpu_hours": 1.0,
        },
    )  # fmt: skip
    async with bookings.world.uow() as uow:
        occasion = await uow.notices.occasion(row["id"])
    assert occasion is not None
    assert occasion[0].kind is NoticeKind.DIGEST
