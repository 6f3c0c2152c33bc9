"""Arrays in the ledger: their elements are made as others start, each runs once, and they are counted exactly."""

import random
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.errors import NotChangeableError, NotFoundError
from reservation_core.domain.jobs.arrays import MADE_AHEAD
from reservation_core.domain.jobs.asked_dependencies import Dependency, DependencyWhen
from reservation_core.domain.model import PodPhase
from reservation_core.domain.request_terms import ArrayCounts
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.usecases.jobs.arrays import RestingArrays, elements, settle_arrays
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.dependencies import known_dependencies, settle_dependants, submit_dependent
from reservation_core.usecases.jobs.submit import prepare, submit
from reservation_core.usecases.jobs.visible_jobs import view_visible
from tests.database.sql import sql
from tests.integration.reservation_core.usecases.world import LONGEST, World, pod


async def settle_all(world: World) -> None:
    """Look until there is no news."""
    while await settle_arrays(world.uow, world.clock, RestingArrays()):
        pass


async def counts(world: World, array_id: str) -> ArrayCounts:
    found = (await world.view(array_id)).counts
    assert found is not None
    return found


async def run(world: World, job_id: str) -> None:
    await world.see(world.cluster.show(pod(job_id), PodPhase.RUNNING, started_at=world.clock.now()))
    assert (await world.row(job_id)).status is JobStatus.RUNNING


async def end(world: World, job_id: str, exit_code: int = 0) -> None:
    now = world.clock.now()
    shown = world.cluster.show(pod(job_id), PodPhase.FINISHED, started_at=now, finished_at=now, exit_code=exit_code)
    await world.see(shown)
    await world.operate()
    await world.see(world.cluster.show(pod(job_id), PodPhase.GONE))
    assert (await world.row(job_id)).finished_at is not None


async def round_of(world: World) -> None:
    """One look of everything that works on arrays."""
    await settle_all(world)
    await world.plan()
    await world.operate()


async def cancelled(world: World, job_id: str) -> None:
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())


async def test_elements_run_and_are_counted_and_the_array_ends_with_the_last(world: World) -> None:
    array_id = await world.submitted(array={"size": 3})
    await round_of(world)
    ids = [f"{array_id}.{index}" for index in range(3)]
    for job_id in ids:
        await run(world, job_id)
    await settle_all(world)
    assert await counts(world, array_id) == ArrayCounts(running=3)
    assert (await world.view(array_id)).reservation.status is JobStatus.RUNNING
    await end(world, ids[0])
    await end(world, ids[2], exit_code=7)
    assert await counts(world, array_id) == ArrayCounts(running=1, succeeded=1, failed=1)
    await settle_all(world)
    assert await counts(world, array_id) == ArrayCounts(running=1, succeeded=1, failed=1)
    await end(world, ids[1])
    await settle_all(world)
    array = (await world.view(array_id)).reservation
    assert (array.status, array.reason.code, array.exit_code) == (JobStatus.FAILED, ReasonCode.ELEMENTS_FAILED, 7)
    assert array.started_at is not None
    assert array.finished_at is not None
    assert await counts(world, array_id) == ArrayCounts(succeeded=2, failed=1)
    assert await world.kinds(array_id) == ["submitted", "started", "failed"]
    assert await world.kinds(ids[0]) == ["submitted", "allocated", "started", "finished", "succeeded"]


async def test_an_element_knows_its_index_and_the_size(world: World) -> None:
    array_id = await world.submitted(array={"size": 2}, workload={"command": ["true"], "env": {"A": "b"}})
    await round_of(world)
    for index in range(2):
        [spec] = [one for one in world.cluster.created if one.name == pod(f"{array_id}.{index}")]
        env = dict(spec.env)
        assert (env["GPU_DEV_ARRAY_INDEX"], env["GPU_DEV_ARRAY_SIZE"], env["A"]) == (str(index), "2", "b")


async def test_the_array_itself_is_never_planned(world: World) -> None:
    array_id = await world.submitted(array={"size": 1})
    await world.plan(slots=True)
    assert (await world.row(array_id)).status is JobStatus.QUEUED
    assert await world.cards(array_id) == ()
    async with world.uow() as uow:
        with pytest.raises(IntegrityError, match="reservations_array_is_not_planned"):
            await sql(uow, "UPDATE reservations SET held = false WHERE id = :id", id=array_id)


async def test_an_array_that_waits_says_what_its_first_element_says(world: World) -> None:
    blocking = await world.submitted(array={"size": 64})
    await round_of(world)
    array_id = await world.submitted(array={"size": 3})
    await settle_all(world)
    await world.plan(slots=True)
    first, shown = await world.view(f"{array_id}.0"), await world.view(array_id)
    assert shown.reservation.reason == first.reservation.reason
    assert shown.reservation.reason.code is not ReasonCode.SUBMITTED
    assert shown.estimated_start_at == first.estimated_start_at is not None
    assert (shown.queue_position, shown.promised_start_at) == (first.queue_position, first.promised_start_at)
    assert (await world.view(blocking)).reservation.status is JobStatus.RUNNING


async def test_no_more_elements_are_open_than_may_run_at_once(world: World) -> None:
    array_id = await world.submitted(array={"size": 5, "parallel": 2})
    seen: list[str] = []
    for _ in range(5):
        await round_of(world)
        async with world.uow() as uow:
            open_now = await uow.arrays.open_elements(array_id, 10)
        assert 1 <= len(open_now) <= 2
        seen += [job_id for job_id in open_now if job_id not in seen]
        for job_id in open_now:
            if (await world.row(job_id)).status is JobStatus.STARTING:
                await run(world, job_id)
        await end(world, open_now[0])
    await settle_all(world)
    assert seen == [f"{array_id}.{index}" for index in range(5)]
    assert (await world.row(array_id)).status is JobStatus.SUCCEEDED


async def test_only_so_many_elements_wait_and_all_are_listed(world: World) -> None:
    size = MADE_AHEAD + 70
    array_id = await world.submitted(array={"size": size}, gpu_type="none-there")
    later = await world.submitted(gpu_type="none-there")
    await settle_all(world)
    async with world.uow() as uow:
        assert len(await uow.arrays.open_elements(array_id, size)) == MADE_AHEAD
        page = await elements(uow, world.who, array_id, None, after=MADE_AHEAD - 3, limit=5)
        queued = await elements(uow, world.who, array_id, frozenset({JobStatus.QUEUED}), after=-1, limit=size + 1)
        ended = await elements(uow, world.who, array_id, frozenset({JobStatus.FAILED}), after=-1, limit=size + 1)
        last = await view_visible(uow, world.who, f"{array_id}.{size - 1}")
        with pytest.raises(NotFoundError):
            await view_visible(uow, world.who, f"{array_id}.{size}")
    assert [view.reservation.id for view in page] == [f"{array_id}.{MADE_AHEAD - 2 + n}" for n in range(5)]
    assert (len(queued), ended) == (size, [])
    assert last.reservation.status is JobStatus.QUEUED
    assert await counts(world, array_id) == ArrayCounts(queued=size)
    # All of them come before what was submitted later.
    assert last.reservation.seq < (await world.row(later)).seq
    with pytest.raises(NotChangeableError, match="before it enters the queue"):
        await cancelled(world, f"{array_id}.{size - 1}")


async def test_cancelling_ends_all_elements_and_then_the_array(world: World) -> None:
    array_id = await world.submitted(array={"size": 300, "parallel": 200})
    await round_of(world)
    await run(world, f"{array_id}.0")
    await settle_all(world)
    await cancelled(world, array_id)
    view = await world.view(array_id)
    assert view.reservation.status is JobStatus.ENDING
    assert view.reservation.reason.code is ReasonCode.CANCELLED_BY_USER
    assert view.counts is not None
    assert view.counts.queued == 0
    await world.operate()
    async with world.uow() as uow:
        rows = await uow.reservations.live()
    await world.see(*(world.cluster.show(pod(row.id), PodPhase.GONE) for row in rows))
    await settle_all(world)
    assert (await world.row(array_id)).status is JobStatus.CANCELLED
    assert await counts(world, array_id) == ArrayCounts(cancelled=300)
    assert (await world.kinds(array_id))[-2:] == ["cancel_requested", "cancelled"]


async def test_an_array_that_waits_is_cancelled_at_once(world: World) -> None:
    array_id = await world.submitted(array={"size": 200}, gpu_type="none-there")
    await settle_all(world)
    await cancelled(world, array_id)
    assert (await world.row(array_id)).status is JobStatus.CANCELLED
    assert await counts(world, array_id) == ArrayCounts(cancelled=200)


async def found_counts(world: World, array_id: str, size: int) -> ArrayCounts:
    """The oracle: the rows of all elements, and those that have none."""
    async with world.uow() as uow:
        rows = list(
            await sql(
                uow, "SELECT id, status, finished_at, array_index FROM reservations WHERE array_id = :id", id=array_id
            )
        )
    array = await world.row(array_id)
    assert sorted(row.array_index for row in rows) == list(range(len(rows)))
    found = Counter("running" if row.status in ("starting", "ending") else row.status for row in rows)
    ended_early = array.status is JobStatus.CANCELLED or array.reason.code is ReasonCode.CANCELLED_BY_USER
    found["cancelled" if ended_early else "queued"] += size - len(rows)
    return ArrayCounts(**found)


@pytest.mark.parametrize("seed", range(8))
async def test_counts_are_those_of_the_rows_whatever_happens_in_whatever_order(world: World, seed: int) -> None:
    chance = random.Random(seed)
    size, parallel = chance.randint(1, 12), chance.choice([None, 1, 3, 5])
    array_id = await world.submitted(array={"size": size, **({} if parallel is None else {"parallel": parallel})})
    for _ in range(40):
        async with world.uow() as uow:
            live = [row for row in await uow.reservations.live() if row.id.startswith(f"{array_id}.")]
            waiting = [job_id for job_id in await uow.arrays.open_elements(array_id, 100)
                       if job_id not in {row.id for row in live}]  # fmt: skip
        starting = [row.id for row in live if row.status is JobStatus.STARTING]
        running = [row.id for row in live if row.status is JobStatus.RUNNING]
        match chance.choice(["settle", "settle", "plan", "run", "end", "end", "cancel one", "cancel all"]):
            case "settle":
                await settle_arrays(world.uow, world.clock, RestingArrays())
            case "plan":
                await world.plan()
                await world.operate()
            case "run" if starting:
                await world.operate()
                await run(world, chance.choice(starting))
            case "end" if running:
                await end(world, chance.choice(running), exit_code=chance.choice([0, 0, 1, 137]))
            case "cancel one" if waiting:
                await cancelled(world, chance.choice(waiting))
            case "cancel all" if chance.random() < 0.1 and (await world.row(array_id)).finished_at is None:
                await cancelled(world, array_id)
        counts_now = await counts(world, array_id)
        assert counts_now == await found_counts(world, array_id, size)
        assert counts_now.running <= (parallel or size)
        assert sum(counts_now) == size
    await settle_all(world)
    array = await world.row(array_id)
    is_over = counts_now.queued + counts_now.running == 0
    assert (array.finished_at is not None) == is_over


async def refuse_to_make(world: World, *array_ids: str) -> None:
    """Have the database refuse elements of these arrays from now on."""
    async with world.uow() as uow:
        listed = ", ".join(f"'{array_id}'" for array_id in array_ids)
        await sql(uow, f"ALTER TABLE reservations ADD CONSTRAINT refused CHECK (array_id NOT IN ({listed})) NOT VALID")


async def allow_to_make(world: World) -> None:
    """Have the database accept elements again."""
    async with world.uow() as uow:
        await sql(uow, "ALTER TABLE reservations DROP CONSTRAINT refused")


async def made(world: World, array_id: str) -> int:
    async with world.uow() as uow:
        return (await uow.arrays.states([array_id]))[array_id].made


async def test_arrays_whose_steps_always_fail_hold_up_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they have all the news that one look reads."""
    monkeypatch.setattr("reservation_core.usecases.jobs.arrays._BATCH", 2)
    monkeypatch.setattr("reservation_core.adapters.postgres.jobs.arrays._SCANNED", 3)
    bad = [await world.submitted(array={"size": 2}) for _ in range(4)]
    good = await world.submitted(array={"size": 2})
    async with world.uow() as uow:
        for _ in range(5):
            await uow.arrays.note(bad[0])
    await refuse_to_make(world, *bad)
    resting = RestingArrays()
    for _ in range(2):
        with pytest.raises(ExceptionGroup, match="steps of arrays failed"):
            await settle_arrays(world.uow, world.clock, resting)
    while await settle_arrays(world.uow, world.clock, resting):
        pass
    assert await made(world, good) == 2
    assert [await made(world, array_id) for array_id in bad] == [0] * 4
    assert sorted(resting.resting(world.clock.now())) == sorted(bad)
    await allow_to_make(world)
    world.clock.go_on(timedelta(seconds=2))
    while await settle_arrays(world.uow, world.clock, resting):
        pass
    assert [await made(world, array_id) for array_id in bad] == [2] * 4
    assert resting.resting(world.clock.now()) == []


async def test_a_bad_array_lets_others_of_the_same_look_go_on_and_rests_longer_each_time(world: World) -> None:
    bad, good = [await world.submitted(array={"size": 1}) for _ in range(2)]
    await refuse_to_make(world, bad)
    resting = RestingArrays()
    with pytest.raises(ExceptionGroup):
        await settle_arrays(world.uow, world.clock, resting)
    assert await made(world, good) == 1
    rests = []
    for _ in range(7):
        begun = world.clock.now()
        while bad in resting.resting(world.clock.now()):
            world.clock.go_on(timedelta(seconds=1))
        rests.append((world.clock.now() - begun) // timedelta(seconds=1))
        with pytest.raises(ExceptionGroup):
            await settle_arrays(world.uow, world.clock, resting)
    assert rests == [1, 2, 4, 8, 16, 30, 30]


async def test_a_job_waits_for_all_elements_of_an_array(world: World) -> None:
    array_id = await world.submitted(array={"size": 2})
    async with world.uow() as uow:
        known = await known_dependencies(uow, world.who, [Dependency(array_id, DependencyWhen.SUCCEEDED)])
    body = JobSubmit.model_validate(
        {"gpus": 1, "duration": 3600, "workload": {"command": ["true"]}, "array": {"size": 2}}
    )
    new = prepare(body, world.who, ids=RandomIds(), longest=LONGEST, now=world.clock.now(), after=known)
    second = (await submit_dependent(world.uow, world.who, new, world.clock.now())).reservation_id
    await round_of(world)
    await settle_dependants(world.uow, world.clock)
    assert await counts(world, second) == ArrayCounts(queued=2)
    assert (await world.view(second)).reservation.reason.code is ReasonCode.WAITING_FOR_JOBS
    for index in range(2):
        async with world.uow() as uow:
            assert await uow.arrays.open_elements(second, 10) == []
        await run(world, f"{array_id}.{index}")
        await end(world, f"{array_id}.{index}")
        await settle_all(world)
        await settle_dependants(world.uow, world.clock)
    await settle_all(world)
    assert (await world.row(array_id)).status is JobStatus.SUCCEEDED
    async with world.uow() as uow:
        assert len(await uow.arrays.open_elements(second, 10)) == 2
    # News of what it waited for changes nothing any more.
    await cancelled(world, second)
    await settle_dependants(world.uow, world.clock)
    assert (await world.row(second)).status is JobStatus.CANCELLED


async def test_an_element_is_asked_for_as_its_array_was(world: World) -> None:
    """A column of the request that is not copied to elements would be forgotten."""
    array_id = await world.submitted(array={"size": 2}, name="sweep", retries={"max": 2}, priority=-3, gpu_type="h100")
    await settle_all(world)
    async with world.uow() as uow:
        rows = await sql(uow, "SELECT to_jsonb(r) AS row FROM reservations r WHERE id = ANY(:ids) ORDER BY id",
                         ids=[array_id, f"{array_id}.1"])  # fmt: skip
        array, element = (row.row for row in rows)
    assert {name for name in array if array[name] != element[name]} == {
        "id", "seq", "held", "array_id", "array_index"
    }, "see make_elements"  # fmt: skip


async def test_the_same_request_twice_is_one_array(world: World) -> None:
    first = world.new(key="k", array={"size": 100})
    second = world.new(key="k", array={"size": 100})
    answers = await submit(world.uow, [first], world.clock.now()) + await submit(world.uow, [second], world.clock.now())
    assert answers[1].replayed_answer == first.answer
    await settle_all(world)
    async with world.uow() as uow:
        assert len((await sql(uow, "SELECT id FROM job_arrays")).all()) == 1


async def test_elements_are_retried_by_themselves(world: World) -> None:
    array_id = await world.submitted(array={"size": 1}, retries={"max": 1})
    await round_of(world)
    await run(world, f"{array_id}.0")
    now = world.clock.now()
    await world.see(world.cluster.show(pod(f"{array_id}.0"), PodPhase.FINISHED, started_at=now, exit_code=1))
    await world.operate()
    await world.see(world.cluster.show(pod(f"{array_id}.0"), PodPhase.GONE))
    await settle_all(world)
    assert (await world.row(f"{array_id}.0")).retried == 1
    assert await counts(world, array_id) == ArrayCounts(queued=1)
