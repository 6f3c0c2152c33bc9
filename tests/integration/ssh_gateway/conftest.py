"""A gateway, a running job of alice's named `box`, and OpenSSH's own client."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from reservation_core.domain.model import PodName, PodSpec, PodWorkload
from reservation_core.domain.statuses import Role
from reservation_core.runtime.settings.components import SshGatewaySettings
from reservation_core.runtime.wiring import Runtime
from ssh_gateway.listening import run
from tests.database.sql import sql
from tests.integration.ssh_gateway.ssh_clients import SshClient, add_key
from tests.waiting import PATIENCE_S


@dataclass
class Gateway:
    """A running gateway."""

    port: int
    stop: asyncio.Event
    serving: "asyncio.Task[None]"


@pytest.fixture
def settings() -> SshGatewaySettings:
    return SshGatewaySettings.model_validate({"ssh": {"listen": "127.0.0.1:0"}})


@asynccontextmanager
async def gateway_of(runtime: Runtime, settings: SshGatewaySettings) -> AsyncIterator[Gateway]:
    """Serve SSH during the block."""
    stop = asyncio.Event()
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(runtime, settings, stop, lambda _host, port: ready.set_result(port)))
    try:
        yield Gateway(await asyncio.wait_for(ready, PATIENCE_S), stop, task)
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE_S)


@pytest.fixture
async def gateway(runtime: Runtime, settings: SshGatewaySettings) -> AsyncIterator[Gateway]:
    async with gateway_of(runtime, settings) as opened:
        yield opened


@pytest.fixture
async def users(runtime: Runtime) -> dict[str, int]:
    """The ids of alice and bob."""
    async with runtime.uow() as uow:
        made = [await uow.identities.create_user(name, Role.USER, runtime.clock.now()) for name in ("alice", "bob")]
    return {user.name: user.id for user in made}


StartJob = Callable[..., "asyncio.Future[str]"]


@pytest.fixture
def start_job(runtime: Runtime, users: dict[str, int], tmp_path: Path) -> Callable[..., object]:
    """Start a job: `await start_job("box", user="alice", MORE="variables")`; returns its id.

    Its home is empty: bash reads ~/.bashrc for commands over SSH.
    """
    home = tmp_path / "home of jobs"
    home.mkdir()

    async def start(name: str, user: str = "alice", index: int = 1, **variables: str) -> str:
        job_id = runtime.ids.new_id("job")
        now = runtime.clock.now()
        await runtime.cluster.create_pod(
            PodSpec(
                name=PodName(job_id, 1, 0),
                user=user,
                node=(await runtime.cluster.list_nodes())[0].name,
                gpu_indices=(index,),
                gpu_uuids=(None,),
                workload=PodWorkload(),
                env=(
                    ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("CUDA_VISIBLE_DEVICES", str(index)),
                    ("HOME", str(home)), *variables.items(),
                ),
                deadline=now + timedelta(minutes=30),
                grace=timedelta(seconds=1),
            )
        )  # fmt: skip
        async with runtime.uow() as uow:
            await sql(
                uow,
                """INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, nodes,
                       duration, priority, workload, created_at, changed_at, attempt, started_at, ends_at)
                   VALUES (:id, 'job', :user, :name, 'running', 'running', 'It runs.', 1, 1, interval '1 hour', 0, '{}',
                       :now, :now, 1, :now, :ends)""",
                id=job_id, user=users[user], name=name, now=now, ends=now + timedelta(hours=1),
            )  # fmt: skip
        return job_id

    return start


@pytest.fixture
async def job(start_job: Callable[..., object]) -> str:
    """The id of alice's job `box`."""
    started: str = await start_job("box")  # type: ignore[misc]
    return started


@pytest.fixture
async def alice(runtime: Runtime, gateway: Gateway, users: dict[str, int], tmp_path: Path) -> SshClient:
    """Alice's client, whose key the server knows."""
    client = SshClient(tmp_path / "alice", gateway.port)
    async with runtime.uow() as uow:
        await add_key(uow, users["alice"], "key-alice", client.public_key, runtime.clock.now())
    return client
