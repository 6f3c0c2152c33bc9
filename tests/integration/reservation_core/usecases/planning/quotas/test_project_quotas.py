"""Quotas of projects where jobs start: what all members have for it counts together, however it is timed."""

import asyncio
import random
from dataclasses import replace

import pytest

from reservation_core.contracts.bookings import BookingCreate
from reservation_core.domain.errors import NotBookableError, NotPermittedError
from reservation_core.domain.model import PodPhase, Reason
from reservation_core.domain.policy.nouns import Scope
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.book import book
from reservation_core.usecases.bookings.cancel import cancel_booking
from reservation_core.usecases.jobs.extend import extend
from tests.clocks import START
from tests.integration.reservation_core.usecases.booking_world import HOUR, MINUTE, BookingWorld
from tests.integration.reservation_core.usecases.planning.quotas.test_quotas import again, ended, rule, statuses
from tests.integration.reservation_core.usecases.world import World, pod
from tests.waiting import eventually

VISION = Scope(project="vision")
_AT_ONCE = """
SELECT coalesce(max((
    SELECT count(*) FROM allocations b JOIN reservations s ON s.id = b.reservation_id
    WHERE s.project = 'vision' AND b.booking_id IS NULL AND NOT b.planned AND b.during @> lower(a.during)
)), 0) AS most
FROM allocations a JOIN reservations r ON r.id = a.reservation_id
WHERE r.project = 'vision' AND a.booking_id IS NULL AND NOT a.planned
"""


async def members(bookings: BookingWorld, *names: str) -> list[World]:
    """The world as alice and as these see it, who are in `vision` all."""
    world = bookings.world
    people = [world.who, *[await bookings.person(name) for name in names]]
    async with world.uow() as uow:
        await uow.projects.create("vision", None, world.clock.now())
        for principal in people:
            await uow.projects.add_member("vision", principal.user_id)
    return [replace(world, who=principal) for principal in people]


async def most_at_once(bookings: BookingWorld) -> int:
    """The most GPUs that were held for the project at one instant."""
    [row] = await bookings.rows(_AT_ONCE)
    most: int = row["most"]
    return most


_WAITS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def a_lock_is_waited_for(bookings: BookingWorld) -> None:
    """Somebody waits for somebody's lock."""

    async def waited_for() -> bool:
        return bool(await bookings.rows(_WAITS))

    await eventually(waited_for)


async def _done_or_waits(bookings: BookingWorld, task: asyncio.Task[None]) -> bool:
    return task.done() or bool(await bookings.rows(_WAITS))


async def extended(world: World, job_id: str, hours: int) -> None:
    """A job that may last longer by so much, if it may."""
    async with world.uow() as uow:
        await extend(uow, world.who, job_id, hours * HOUR, None, 240 * HOUR, world.clock.now())


async def test_what_all_members_run_for_a_project_counts_together(bookings: BookingWorld) -> None:
    alice, bob = await members(bookings, "bob")
    await rule(bookings.world, VISION, max_gpus=2)
    jobs = [await member.submitted(project="vision") for member in (alice, bob, alice, bob)]
    others = [await member.submitted() for member in (alice, bob)]
    planner = await alice.planner()
    await planner.cycle()
    await planner.publish_estimates()
    assert await statuses(alice, *jobs) == [JobStatus.STARTING] * 2 + [JobStatus.QUEUED] * 2
    # What they run for themselves is none of the project's.
    assert await statuses(alice, *others) == [JobStatus.STARTING] * 2
    reason = (await bob.view(jobs[3])).reservation.reason
    assert reason.code is ReasonCode.QUOTA_REACHED
    assert "1 GPU beside 2 of project vision now; the limit is 2 at once (project vision)" in reason.detail
    # Bob's ends: alice's is the next.
    await ended(bookings, jobs[1])
    await planner.cycle()
    assert (await statuses(alice, *jobs))[2:] == [JobStatus.STARTING, JobStatus.QUEUED]


@pytest.mark.parametrize("number", range(6))
async def test_however_many_submit_at_once_no_more_run_than_the_project_may(
    bookings: BookingWorld, number: int
) -> None:
    """Members submit and book at the same time as the planner plans; the ledger is asked what was held at once."""
    choose = random.Random(number)
    people = await members(bookings, "bob", "eve")
    world, most = people[0], choose.randint(1, 3)
    await rule(world, VISION, max_gpus=most)
    planner = await world.planner()
    jobs: list[str] = []
    refusals: set[str] = set()

    async def submit(who: World) -> None:
        size = choose.randint(1, most)
        fields = {"gpus": min(size, 2), "project": choose.choice(["vision", "vision", None])}
        jobs.append(await who.submitted(**fields))

    async def book_now(who: Principal) -> None:
        try:
            await bookings.booked(world.clock.now(), length=choose.randint(1, 5) * MINUTE, who=who, project="vision")
        except NotBookableError as refused:
            refusals.update(broken.code for broken in refused.broken_rules)

    async def plan() -> None:
        for _ in range(3):
            await planner.cycle()

    for _ in range(3):
        await asyncio.gather(
            *(submit(choose.choice(people)) for _ in range(4)), book_now(choose.choice(people).who), plan()
        )
        assert await most_at_once(bookings) <= most
    for _ in range(5 * len(jobs)):
        await planner.cycle()
        assert await most_at_once(bookings) <= most
        runs = [job for job in jobs if (await world.row(job)).status is JobStatus.STARTING]
        if runs:
            await ended(bookings, choose.choice(runs))
        else:
            await bookings.at(world.clock.now() + MINUTE)
        if set(await statuses(world, *jobs)) == {JobStatus.SUCCEEDED}:
            break
    # Nobody waits for ever, and the quota was used.
    assert set(await statuses(world, *jobs)) == {JobStatus.SUCCEEDED}
    assert await most_at_once(bookings) == most
    assert refusals <= {"max_gpus", "no_free_gpus"}


async def test_what_another_member_books_behind_the_planners_back_is_seen_as_jobs_start(
    bookings: BookingWorld,
) -> None:
    alice, bob = await members(bookings, "bob")
    await rule(bookings.world, VISION, max_gpus=2)
    planner = await alice.planner()
    await planner.cycle()
    planner._quota._every = HOUR  # what it knows is old from now on
    await bookings.booked(START, gpus=2, who=bob.who, project="vision")
    hers, own = await alice.submitted(project="vision"), await alice.submitted()
    await planner.cycle()
    assert await statuses(alice, hers, own) == [JobStatus.QUEUED, JobStatus.STARTING]
    await again(planner)
    assert await statuses(alice, hers) == [JobStatus.QUEUED]
    assert "(project vision)" in (await alice.view(hers)).reservation.reason.detail


async def test_a_start_waits_for_another_members_booking_that_is_being_made(bookings: BookingWorld) -> None:
    alice, bob = await members(bookings, "bob")
    await rule(bookings.world, VISION, max_gpus=1)
    planner = await alice.planner()
    job = await alice.submitted(project="vision")
    wanted = BookingCreate.model_validate(
        {"gpus": 1, "start": START.isoformat(), "duration": 3600, "project": "vision"}
    )

    async with bob.uow() as uow:
        await book(uow, bob.who, wanted, bookings.ids)
        cycle = asyncio.create_task(planner.cycle())
        await a_lock_is_waited_for(bookings)
        assert not cycle.done()
    assert not (await cycle).conflict
    assert await statuses(alice, job) == [JobStatus.QUEUED]


async def test_a_members_own_quota_holds_beside_the_projects(bookings: BookingWorld) -> None:
    alice, bob = await members(bookings, "bob")
    await rule(bookings.world, VISION, max_gpus=3)
    await rule(bookings.world, Scope(user="alice"), max_gpus=2)
    jobs = [await alice.submitted(project="vision") for _ in range(3)]
    his = [await bob.submitted(project="vision") for _ in range(2)]
    planner = await alice.planner()
    await planner.cycle()
    await planner.publish_estimates()
    waits, runs = JobStatus.QUEUED, JobStatus.STARTING
    assert await statuses(alice, *jobs, *his) == [runs, runs, waits, runs, waits]
    assert "(user alice)" in (await alice.view(jobs[2])).reservation.reason.detail
    assert "(project vision)" in (await bob.view(his[1])).reservation.reason.detail


async def test_gpu_hours_of_a_project_are_its_members_together(bookings: BookingWorld) -> None:
    alice, bob = await members(bookings, "bob")
    # With the time that a start may take, an hour's job is allocated 62 minutes.
    await rule(bookings.world, VISION, max_gpu_hours_per_week=2.5)
    jobs = [await member.submitted(project="vision") for member in (alice, bob, alice)]
    planner = await alice.planner()
    await planner.cycle()
    assert await statuses(alice, *jobs) == [JobStatus.STARTING, JobStatus.STARTING, JobStatus.QUEUED]
    # What bob's did not need comes back; what it needed does not.
    await ended(bookings, jobs[1])
    await rule(bookings.world, VISION, max_gpu_hours_per_week=62 / 60 * 2)
    await planner.cycle()
    assert await statuses(alice, jobs[2]) == [JobStatus.QUEUED]
    await rule(bookings.world, VISION, max_gpu_hours_per_week=62 / 60 * 2 + 2 / 60)
    await planner.cycle()
    assert await statuses(alice, jobs[2]) == [JobStatus.STARTING]


async def test_what_another_member_gave_back_behind_the_planners_back_counts_as_jobs_start(
    bookings: BookingWorld,
) -> None:
    alice, bob = await members(bookings, "bob")
    await rule(bookings.world, VISION, max_gpu_hours_per_week=1.2)
    planner = await alice.planner()
    await planner.cycle()
    planner._quota._every = HOUR  # what it knows is old from now on
    made = await bookings.booked(START, who=bob.who, project="vision")
    await bookings.at(START + 30 * MINUTE)
    async with bob.uow() as uow:
        await cancel_booking(uow, bob.who, made.id, "this", None)
    job = await alice.submitted(project="vision")
    await planner.cycle()
    assert await statuses(alice, job) == [JobStatus.QUEUED]
    await again(planner)
    assert await statuses(alice, job) == [JobStatus.QUEUED]
    assert "where 0.5 are taken" in (await alice.view(job)).reservation.reason.detail
    await rule(bookings.world, VISION, max_gpu_hours_per_week=1.6)
    planner._quota._every = 0 * HOUR
    await again(planner)
    assert await statuses(alice, job) == [JobStatus.STARTING]


async def test_an_extension_is_held_to_the_projects_quotas(bookings: BookingWorld) -> None:
    alice, bob = await members(bookings, "bob")
    job = await alice.ran(project="vision")
    own = await alice.ran()
    await bookings.booked(START + 3 * HOUR, gpus=2, who=bob.who, project="vision")
    await rule(bookings.world, VISION, max_gpus=2, max_duration=8 * HOUR)

    async def refused(job_id: str, hours: int) -> list[str]:
        with pytest.raises(NotPermittedError) as caught:
            await extended(alice, job_id, hours)
        return [f"{broken.code} {'(project vision)' in broken.detail}" for broken in caught.value.broken_rules]

    assert await refused(job, 9) == ["max_duration True"]
    assert await refused(job, 3) == ["max_gpus True"]
    await extended(alice, job, 1)
    # What she runs for herself is not the project's.
    await rule(bookings.world, VISION, max_gpus=0, max_duration=HOUR)
    await extended(alice, own, 1)


async def test_an_extension_waits_for_a_booking_of_another_member(bookings: BookingWorld) -> None:
    alice, bob = await members(bookings, "bob")
    job = await alice.ran(project="vision")
    await rule(bookings.world, VISION, max_gpus=1)
    wanted = BookingCreate.model_validate(
        {"gpus": 1, "start": (START + 2 * HOUR).isoformat(), "duration": 3600, "project": "vision"}
    )

    async with bob.uow() as uow:
        await book(uow, bob.who, wanted, bookings.ids)
        extension = asyncio.create_task(extended(alice, job, 2))
        await a_lock_is_waited_for(bookings)
    with pytest.raises(NotPermittedError) as refused:
        await extension
    assert [broken.code for broken in refused.value.broken_rules] == ["max_gpus"]


@pytest.mark.parametrize("project", [None, "vision"])
async def test_of_two_extensions_at_once_the_second_sees_the_first(bookings: BookingWorld, project: str | None) -> None:
    """Of one user, or of two members of a project: both read what is held, and one would miss what the other adds."""
    alice, bob = await members(bookings, "bob")
    other = alice if project is None else bob
    first, second = await alice.ran(project=project), await other.ran(project=project)
    # Each has 62 minutes by now; an hour more is allowed to one.
    await rule(bookings.world, Scope(user="alice") if project is None else VISION, max_gpu_hours_per_week=3.2)

    async with alice.uow() as uow:
        await extend(uow, alice.who, first, HOUR, None, 240 * HOUR, alice.clock.now())
        racing = asyncio.create_task(extended(other, second, 1))
        # Without the lock it is done before the first has committed.
        await eventually(lambda: _done_or_waits(bookings, racing))
        assert not racing.done()
    with pytest.raises(NotPermittedError) as refused:
        await racing
    assert [broken.code for broken in refused.value.broken_rules] == ["max_gpu_hours_per_week"]
    assert (await alice.row(first)).duration == 2 * HOUR
    assert (await other.row(second)).duration == HOUR


async def test_a_job_that_is_tried_again_is_still_for_its_project(bookings: BookingWorld) -> None:
    alice, bob = await members(bookings, "bob")
    await rule(bookings.world, VISION, max_gpus=1)
    job = await alice.started(project="vision")
    gone = Reason(ReasonCode.EVICTED, "Evicted: the node was low on memory.")
    await alice.see(alice.cluster.show(pod(job), PodPhase.FINISHED, reason=gone))
    await alice.operate()
    row = await alice.row(job)
    assert (row.status, row.project, row.attempt) == (JobStatus.QUEUED, "vision", 1)
    his = await bob.submitted(project="vision")
    await alice.plan()
    assert await statuses(alice, job, his) == [JobStatus.STARTING, JobStatus.QUEUED]


async def test_the_workload_of_a_booking_is_for_the_bookings_project(bookings: BookingWorld) -> None:
    [alice] = await members(bookings)
    made = await bookings.booked(START + HOUR, project="vision", workload={"command": ["true"]})
    await bookings.at(START + HOUR)
    [job] = (await bookings.booking(made.id)).jobs
    row = await alice.row(job)
    assert (row.project, row.booking_id) == ("vision", made.id)
    # What runs within the booking is the booking's: it is not counted again.
    await rule(bookings.world, VISION, max_gpus=1)
    await alice.plan()
    assert await statuses(alice, job) == [JobStatus.STARTING]


async def test_who_leaves_a_project_keeps_what_waits_for_it(bookings: BookingWorld) -> None:
    alice, bob = await members(bookings, "bob")
    await rule(bookings.world, VISION, max_gpus=1)
    jobs = [await member.submitted(project="vision") for member in (alice, bob)]
    planner = await alice.planner()
    await planner.cycle()
    async with bob.uow() as uow:
        await uow.projects.remove_member("vision", bob.who.user_id)
    await planner.cycle()
    assert await statuses(alice, *jobs) == [JobStatus.STARTING, JobStatus.QUEUED]
    await ended(bookings, jobs[0])
    await planner.cycle()
    assert await statuses(alice, jobs[1]) == [JobStatus.STARTING]
