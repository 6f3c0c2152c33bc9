"""The last lines of pods whose cluster forgets them: kept before the pod goes, and never at the price of a card."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.jobs.pod_logs import LONGEST_TAIL, KeptLog
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.running import last_output
from reservation_core.usecases.running.last_output import LastOutput
from tests.integration.reservation_core.usecases.world import LAUNCH, World, pod
from tests.waiting import PATIENCE_S, eventually


async def kept(world: World, job_id: str, rank: int = 0) -> bytes | None:
    async with world.uow() as uow:
        return await uow.pod_logs.tail(pod(job_id, rank))


async def cancelled(world: World, job_id: str) -> None:
    async with world.uow() as uow:
        await cancel(uow, world.who, job_id, None, world.clock.now())


async def ended(world: World, log: bytes) -> str:
    """A job whose pod has finished by itself and was removed."""
    job_id = await world.ran()
    world.cluster.logs[str(pod(job_id))] = log
    await world.see(world.cluster.show(pod(job_id), PodPhase.FINISHED, exit_code=0))
    await world.operate()
    assert (await world.row(job_id)).status is JobStatus.SUCCEEDED
    return job_id


async def test_the_last_lines_are_kept_before_the_pod_goes(world: World) -> None:
    world.cluster.forgetful = True
    world.launch = replace(LAUNCH, log_lines=2)
    job_id = await ended(world, b"one\ntwo\nthree\n")
    assert world.cluster.pods == {}
    assert await kept(world, job_id) == b"two\nthree\n"


async def test_a_cluster_that_remembers_keeps_its_logs_itself(world: World) -> None:
    assert await kept(world, await ended(world, b"one\n")) is None


async def test_nothing_is_kept_when_no_lines_are_wanted(world: World) -> None:
    world.cluster.forgetful = True
    world.launch = replace(LAUNCH, log_lines=0)
    assert await kept(world, await ended(world, b"one\n")) is None


async def test_of_a_long_log_the_end_is_kept_from_the_beginning_of_a_line(world: World) -> None:
    world.cluster.forgetful = True
    line = b"x" * 1_000_000 + b"\n"
    assert await kept(world, await ended(world, line + line + b"the end\n")) == line + b"the end\n"
    endless = await kept(world, await ended(world, b"x" * 3 * LONGEST_TAIL))
    assert endless == b"x" * LONGEST_TAIL


async def test_of_a_pod_that_is_ended_what_it_prints_last_is_kept_too(world: World) -> None:
    world.cluster.forgetful = True
    world.cluster.obedient = False
    job_id = await world.ran()
    world.cluster.logs[str(pod(job_id))] = b"one\n"
    await cancelled(world, job_id)
    await world.operate()
    assert await kept(world, job_id) == b"one\n"
    # Once is enough while it still runs.
    world.cluster.logs[str(pod(job_id))] = b"one\nterminated\n"
    async with world.uow() as uow:
        await uow.reservations.resend([job_id])
    await world.operate()
    assert await kept(world, job_id) == b"one\n"
    await world.see(world.cluster.show(pod(job_id), PodPhase.FINISHED, exit_code=143))
    await world.operate()
    assert await kept(world, job_id) == b"one\nterminated\n"


async def test_a_log_that_can_not_be_read_keeps_no_card(world: World) -> None:
    world.cluster.forgetful = world.cluster.silent = True
    world.launch = replace(LAUNCH, log_patience=timedelta(milliseconds=20))
    async with asyncio.timeout(PATIENCE_S):
        job_id = await ended(world, b"one\n")
    assert not any(card.held for card in await world.cards(job_id))
    assert await kept(world, job_id) == b""
    found = await world.sql("SELECT subject, data FROM events WHERE kind = 'log_not_kept'")
    assert [(row.subject, row.data) for row in found] == [(job_id, {"pods": [str(pod(job_id))]})]


async def test_a_tail_is_never_replaced_by_its_own_beginning_nor_what_is_complete_by_anything(world: World) -> None:
    job_id = await world.submitted()
    steps = [
        (b"half", False), (b"", False), (b"ha", False),
        (b"whole", False), (b"who", True), (b"later", True), (b"", False),
    ]  # fmt: skip
    seen = []
    for tail, complete in steps:
        async with world.uow() as uow:
            await uow.pod_logs.keep([KeptLog(pod(job_id), tail, complete)], world.clock.now())
            seen.append((await uow.pod_logs.tail(pod(job_id)), (await uow.pod_logs.kept([pod(job_id)]))[pod(job_id)]))
    assert seen == [*[(b"half", False)] * 3, (b"whole", False), *[(b"whole", True)] * 3]
    async with world.uow() as uow:
        assert await uow.pod_logs.kept([pod(job_id, 1)]) == {}


async def test_what_a_pod_prints_last_is_waited_for_in_the_background_and_given_up_at_the_end(world: World) -> None:
    world.cluster.forgetful = world.cluster.silent = True
    job_id = await world.ran()
    output = LastOutput(world.uow, world.cluster, world.clock, 10)
    async with asyncio.timeout(PATIENCE_S):
        output.follow([pod(job_id)], timedelta(hours=1))
        await output.close()
    assert await kept(world, job_id) is None
    world.cluster.silent = False
    world.cluster.logs[str(pod(job_id))] = b"one\nterminated\n"
    output.follow([pod(job_id)], timedelta(hours=1))

    async def is_kept() -> bool:
        return await kept(world, job_id) == b"one\nterminated\n"

    await eventually(is_kept)
    await output.close()


async def test_of_what_a_pod_prints_while_it_ends_the_last_lines_are_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.forgetful = True
    job_id = await world.ran()

    async def prints(_name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        assert (follow, tail_lines) == (True, 2)
        for line in (b"one\ntwo\n", b"saving", b"\n\nsa", b"ved\n"):
            yield line

    monkeypatch.setattr(world.cluster, "pod_logs", prints)
    output = LastOutput(world.uow, world.cluster, world.clock, 2)
    output.follow([pod(job_id)], timedelta(hours=1))

    async def is_kept() -> bool:
        return await kept(world, job_id) == b"\nsaved\n"

    await eventually(is_kept)
    await output.close()


async def test_no_more_pods_are_followed_than_at_once_and_the_others_are_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cluster.forgetful = True
    monkeypatch.setattr(last_output, "_AT_ONCE", 1)
    followed = []

    async def says_nothing(name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        followed.append((name, follow, tail_lines))
        await asyncio.Event().wait()
        yield b""

    monkeypatch.setattr(world.cluster, "pod_logs", says_nothing)
    output = LastOutput(world.uow, world.cluster, world.clock, 2)
    with capture_logs() as lines:
        for _ in range(2):  # an operation may be carried out again
            output.follow([pod("job-00000001"), pod("job-00000001", 1)], timedelta(hours=1))
            await eventually(lambda: bool(followed))
    await output.close()
    assert followed == [(str(pod("job-00000001")), True, 2)]
    assert [(line["event"], line["pods"]) for line in lines] == [("last_output_not_followed", 1)] * 2
