"""The way of a job, whole: submitted, planned, run in a real process, followed, ended, its GPUs given back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.model import PodName
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.jobs.reservations import JobView
from reservation_core.ports.nodes.inventory import GpuView
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.jobs.submit import prepare, submit
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_expiry.expire import run_once as expire_once
from reservation_processor.process import run
from tests.waiting import eventually

SETTINGS = StandaloneSettings(end_grace_s=1, resync_s=0.5, sweep_s=0.25, estimate_s=0.1, warn_before_s=(60, 20))
LONGEST = timedelta(hours=1)


@pytest.fixture
async def alice(runtime: Runtime) -> Principal:
    async with runtime.uow() as uow:
        user = await uow.identities.create_user("alice", Role.USER, runtime.clock.now())
    await update_inventory(runtime.uow, runtime.cluster, runtime.clock)
    return Principal(user.id, user.name, user.role, "tok-x", None)


@asynccontextmanager
async def processor(runtime: Runtime, settings: StandaloneSettings = SETTINGS) -> AsyncIterator[None]:
    """A processor at work while the block runs."""
    stop = asyncio.Event()
    task = asyncio.create_task(run(runtime, settings, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def submitted(runtime: Runtime, who: Principal, *command: str, gpus: int = 1, **more: object) -> str:
    """The id of a fresh job."""
    request = JobSubmit.model_validate({"gpus": gpus, "duration": 60, "workload": {"command": list(command)}, **more})
    new = prepare(request, who, ids=runtime.ids, longest=LONGEST, now=runtime.clock.now())
    [answer] = await submit(runtime.uow, [new], runtime.clock.now())
    return answer.reservation_id


async def job(runtime: Runtime, job_id: str) -> JobView:
    """How it stands."""
    async with runtime.uow() as uow:
        view = await uow.reservations.view(job_id, None)
    assert view is not None
    return view


async def status(runtime: Runtime, job_id: str) -> JobStatus:
    """Its status now."""
    return (await job(runtime, job_id)).reservation.status


async def gpus(runtime: Runtime) -> list[GpuView]:
    """Every card."""
    async with runtime.uow() as uow:
        return await uow.inventory.gpus(after=None, limit=100)


async def output(runtime: Runtime, name: PodName) -> str:
    """All that a pod printed."""
    return b"".join([chunk async for chunk in runtime.cluster.pod_logs(str(name), follow=False)]).decode()


async def reaches(runtime: Runtime, job_id: str, wanted: JobStatus) -> JobView:
    """Wait for a status."""

    async def there() -> bool:
        return await status(runtime, job_id) is wanted

    await eventually(there)
    return await job(runtime, job_id)


async def test_a_job_sees_exactly_its_gpus_and_gives_them_back(runtime: Runtime, alice: Principal) -> None:
    async with processor(runtime):
        job_id = await submitted(
            runtime, alice, "sh", "-c", "echo gpus=$CUDA_VISIBLE_DEVICES job=$GPU_DEV_JOB_ID", gpus=2
        )
        view = await reaches(runtime, job_id, JobStatus.SUCCEEDED)
    assert view.reservation.exit_code == 0
    indices = ",".join(str(gpu.index) for gpu in view.allocations)
    assert await output(runtime, PodName(job_id, 1, 0)) == f"gpus={indices} job={job_id}\n"
    assert len(view.allocations) == 2
    assert {gpu.state.value for gpu in await gpus(runtime)} == {"free"}
    async with runtime.uow() as uow:
        kinds = [event.kind for event in await uow.events.of_reservation(job_id, 0, 100)]
        depths = {m.queue: m.depth for m in await uow.queue.metrics()}
    assert kinds == ["submitted", "allocated", "started", "finished", "succeeded"]
    assert {queue: depth for queue, depth in depths.items() if depth and queue.endswith("_dlq")} == {}


async def test_a_failing_command_fails_with_its_exit_code(runtime: Runtime, alice: Principal) -> None:
    async with processor(runtime):
        job_id = await submitted(runtime, alice, "sh", "-c", "exit 7")
        view = await reaches(runtime, job_id, JobStatus.FAILED)
    assert (view.reservation.exit_code, view.reservation.reason.code.value) == (7, "command_failed")


async def test_a_missing_program_fails_at_the_start(runtime: Runtime, alice: Principal) -> None:
    async with processor(runtime):
        job_id = await submitted(runtime, alice, "/no/such/program")
        view = await reaches(runtime, job_id, JobStatus.FAILED)
    assert view.reservation.reason.code.value == "start_failed"


async def test_a_running_job_is_cancelled_and_the_next_one_starts(runtime: Runtime, alice: Principal) -> None:
    async with processor(runtime):
        first = await submitted(runtime, alice, "sleep", "60", gpus=4)
        await reaches(runtime, first, JobStatus.RUNNING)
        second = await submitted(runtime, alice, "true", gpus=3)

        async def told() -> bool:
            view = await job(runtime, second)
            return view.reservation.reason.code.value == "waiting_for_gpus"

        await eventually(told)
        waiting = await job(runtime, second)
        assert waiting.queue_position == 1
        assert waiting.estimated_start_at is not None
        async with runtime.uow() as uow:
            view = await cancel(uow, alice, first, None, runtime.clock.now())
        assert view.reservation.status is JobStatus.ENDING
        await reaches(runtime, first, JobStatus.CANCELLED)
        await reaches(runtime, second, JobStatus.SUCCEEDED)


async def test_a_waiting_job_is_cancelled_at_once(runtime: Runtime, alice: Principal) -> None:
    job_id = await submitted(runtime, alice, "true")
    async with runtime.uow() as uow:
        view = await cancel(uow, alice, job_id, None, runtime.clock.now())
    assert view.reservation.status is JobStatus.CANCELLED
    async with processor(runtime):
        after = await submitted(runtime, alice, "true")
        await reaches(runtime, after, JobStatus.SUCCEEDED)
    assert await status(runtime, job_id) is JobStatus.CANCELLED
    assert (await job(runtime, job_id)).allocations == ()


async def test_a_processor_alone_ends_a_job_past_its_end(runtime: Runtime, alice: Principal) -> None:
    """The expiry comes once a minute where the chart runs it: an end does not wait for that."""
    async with processor(runtime):
        job_id = await submitted(runtime, alice, "sleep", "600", duration=2)
        await reaches(runtime, job_id, JobStatus.EXPIRED)
    view = await job(runtime, job_id)
    assert view.reservation.reason.code.value == "duration_reached"
    async with runtime.uow() as uow:
        events = await uow.events.of_reservation(job_id, 0, 100)
    # Without that the cluster's own deadline ends the pod, much later.
    assert "end_reached" in [event.kind for event in events]
    assert {gpu.state.value for gpu in await gpus(runtime)} == {"free"}


async def test_an_expiry_that_looks_at_the_same_time_ends_nothing_twice(runtime: Runtime, alice: Principal) -> None:
    async with processor(runtime):
        job_id = await submitted(runtime, alice, "sleep", "600", duration=2)

        async def ended() -> bool:
            await asyncio.gather(*(expire_once(runtime, SETTINGS) for _ in range(3)))
            return await status(runtime, job_id) is JobStatus.EXPIRED

        await eventually(ended)
    async with runtime.uow() as uow:
        events = await uow.events.of_reservation(job_id, 0, 100)
    assert [event.kind for event in events].count("end_reached") == 1


async def test_a_start_that_never_comes_about_is_given_up_by_a_processor_alone(
    runtime: Runtime, alice: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(*_: object) -> None:
        """A cluster that makes nothing of what it took."""

    monkeypatch.setattr(runtime.cluster, "create_pod", forgets)
    settings = SETTINGS.model_copy(update={"start_allowance_s": 0.5, "max_starts": 1})
    async with processor(runtime, settings):
        job_id = await submitted(runtime, alice, "true")
        await reaches(runtime, job_id, JobStatus.FAILED)
    assert (await job(runtime, job_id)).reservation.reason.code.value == "start_timeout"


async def test_warnings_are_given_once_each(runtime: Runtime, alice: Principal) -> None:
    async with processor(runtime):
        job_id = await submitted(runtime, alice, "sleep", "600", duration=21)
        await reaches(runtime, job_id, JobStatus.RUNNING)

        async def warned() -> bool:
            async with runtime.uow() as uow:
                events = await uow.events.of_reservation(job_id, 0, 100)
            return "end_warning" in [event.kind for event in events]

        await eventually(warned)
        await expire_once(runtime, SETTINGS)
        async with runtime.uow() as uow:
            events = await uow.events.of_reservation(job_id, 0, 100)
            await cancel(uow, alice, job_id, None, runtime.clock.now())
        # The minute's warning would say nothing to a job of 21 seconds.
        assert [event.kind for event in events].count("end_warning") == 1
        await reaches(runtime, job_id, JobStatus.CANCELLED)


async def test_an_extended_job_lasts_longer_everywhere(runtime: Runtime, alice: Principal) -> None:
    async with processor(runtime):
        job_id = await submitted(runtime, alice, "sleep", "600")
        before = await reaches(runtime, job_id, JobStatus.RUNNING)
        async with runtime.uow() as uow:
            after = await extend(uow, alice, job_id, timedelta(minutes=5), None, LONGEST, runtime.clock.now())
        assert before.reservation.ends_at is not None
        assert after.reservation.ends_at == before.reservation.ends_at + timedelta(minutes=5)
        # The cards are its own for as long as its pod may need to go after that.
        assert {gpu.ends_at for gpu in after.allocations} == {after.reservation.ends_at + SETTINGS.end_grace}
        async with runtime.uow() as uow:
            await cancel(uow, alice, job_id, None, runtime.clock.now())
        await reaches(runtime, job_id, JobStatus.CANCELLED)


async def test_a_job_nobody_can_run_is_told_why(runtime: Runtime, alice: Principal) -> None:
    async with processor(runtime):
        job_id = await submitted(runtime, alice, "true", gpus=5)

        async def told() -> bool:
            return (await job(runtime, job_id)).reservation.reason.code.value == "larger_than_any_node"

        await eventually(told)
        other = await submitted(runtime, alice, "true")
        await reaches(runtime, other, JobStatus.SUCCEEDED)
