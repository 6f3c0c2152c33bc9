"""The pods of a job on several nodes, by OpenSSH's own client."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from reservation_core.domain.model import PodName, PodSpec, PodWorkload
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.ssh_gateway.ssh_clients import SshClient

StartJob = Callable[..., Awaitable[str]]


@pytest.fixture
async def two(runtime: Runtime, start_job: StartJob) -> str:
    """Alice's job `box` with two pods."""
    job = await start_job("box", RANK="0")
    await runtime.cluster.create_pod(
        PodSpec(
            name=PodName(job, 1, 1),
            user="alice",
            node=(await runtime.cluster.list_nodes())[0].name,
            gpu_indices=(2,),
            gpu_uuids=(None,),
            workload=PodWorkload(),
            env=(("PATH", "/usr/bin:/bin"), ("RANK", "1"), ("HOME", "/nonexistent")),
            deadline=runtime.clock.now() + timedelta(minutes=30),
            grace=timedelta(seconds=1),
        )
    )
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE reservations SET nodes = 2 WHERE id = :id", id=job)
    return job


async def test_a_user_name_may_end_with_a_rank(alice: SshClient, two: str) -> None:
    for user, rank in (("box", b"0"), ("box+0", b"0"), ("box+1", b"1"), (f"{two}+1", b"1")):
        assert (await alice.run(f"{user}@gw", "echo $RANK")).out.strip() == rank, user
    refused = await alice.run("box+2@gw", "true")
    assert refused.code == 255
    assert f"{two} has no rank 2. Its ranks are 0 to 1." in refused.err
    unknown = await alice.run("other+1@gw", "true")
    assert "You have no job other+1 that you could enter." in unknown.err


async def test_a_jump_leads_to_a_rank(alice: SshClient, two: str) -> None:
    config = alice.folder / "config"
    config.write_text(f"Host *.gpu-dev\n    HostName %h\n    HostKeyAlias gw\n\n{config.read_text()}")
    jumped = await alice.run("-J", "alice@127.0.0.1", "anybody@box+1.gpu-dev", "echo $RANK")
    assert jumped.out == b"1\n", jumped.err


async def test_ones_own_job_of_the_whole_name_goes_first_and_anothers_last(
    runtime: Runtime, alice: SshClient, two: str, start_job: StartJob, users: dict[str, int]
) -> None:
    bobs = await start_job("box+1", user="bob", index=3, RANK="of bob")
    async with runtime.uow() as uow:
        await sql(
            uow, "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES (:job, :user, now())",
            job=bobs, user=users["alice"],
        )  # fmt: skip
    assert (await alice.run("box+1@gw", "echo $RANK")).out == b"1\n"
    await start_job("box+1", index=0, RANK="of alice")
    assert (await alice.run("box+1@gw", "echo $RANK")).out == b"of alice\n"
