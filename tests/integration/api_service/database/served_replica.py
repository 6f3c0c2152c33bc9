"""An API on a primary and its replica, what became of its reads, and work that is under way at the replica."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import asyncpg
import httpx
import psutil
from pydantic import SecretStr

from api_service.app import create_app
from reservation_core.adapters.postgres.connection.migrating import upgrade
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.statuses import Role
from reservation_core.runtime.reading.reading import (
    ReplicaReads,
    ReplicaUse,
    open_reads,
)
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from tests.chart.dev_server.database_pods import SMALL, Pod, sqlalchemy_url
from tests.waiting import PATIENCE_S, eventually

T = TypeVar("T")


ALONE = {"postgres": {**SMALL["postgres"], "replication": {"synchronous": False}}}
"""Commits wait for nobody: the replica has them when it has them."""


PATIENT_S = 5.0
"""So long a read waits where it is to be answered by the replica, however busy the machine is."""


BRIEF_S = 0.05


@dataclass(frozen=True)
class Pair:
    """A primary and its replica."""

    primary: Pod
    replica: Pod


@dataclass(frozen=True)
class Served:
    """An API on them: an administrator's client, and what became of its reads."""

    client: httpx.AsyncClient
    runtime: Runtime
    reads: ReplicaReads

    @property
    def use(self) -> ReplicaUse:
        return self.reads.use

    async def in_use(self) -> None:
        await eventually(lambda: self.use.in_use)


@asynccontextmanager
async def superuser(pod: Pod) -> AsyncIterator[asyncpg.Connection]:
    """A connection that may do everything, in the database of ours."""
    connection = await asyncpg.connect(host=str(pod.socket), port=pod.port, user="postgres", database="gpudev")
    try:
        yield connection
    finally:
        await connection.close()


async def bring_up(make: Callable[[str], Pod]) -> Pair:
    primary, replica = make("postgres-primary"), make("postgres-replica")
    primary.start(ALONE, primary)
    replica.start(ALONE, primary)
    await (await primary.connect()).close()
    await upgrade(sqlalchemy_url(primary))
    async with superuser(primary) as connection:
        await connection.execute("ALTER ROLE gpudev SET log_statement = 'all'")
    await (await replica.connect()).close()
    return Pair(primary, replica)


@asynccontextmanager
async def served(
    pair: Pair, home: Path, wait_s: float = PATIENT_S, replica_url: str | None = None
) -> AsyncIterator[Served]:
    """An API whose database they are, with users of its own."""
    settings = ApiSettings(
        home=home,
        local_gpus="h100:1",
        database_pool=5,
        database_replica_url=SecretStr(replica_url or sqlalchemy_url(pair.replica)),
        database_replica_wait_s=wait_s,
    )
    async with (
        open_runtime(settings, sqlalchemy_url(pair.primary), application="test") as runtime,
        open_reads(settings, runtime, application="test") as reads,
    ):
        assert isinstance(reads, ReplicaReads)
        secret = runtime.ids.new_secret()
        now = runtime.clock.now()
        async with runtime.uow() as uow:
            user = await uow.identities.create_user(f"root-{uuid4().hex[:12]}", Role.ADMIN, now)
            token = runtime.ids.new_id("tok")
            await uow.identities.create_token(token, user.id, None, runtime.ids.digest(secret), None, now)
        app = create_app(runtime, settings, reads=reads)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://api", headers={"Authorization": f"Bearer {secret}"}
            ) as client,
        ):
            yield Served(client, runtime, reads)


async def got_there(api: Served, path: str, **params: str) -> httpx.Response:
    """The replica's answer; a machine that is busy may need several tries."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await api.in_use()
            used = api.use.used
            answer = await api.client.get(path, params=params or None)
            if api.use.used == used + 1:
                return answer


async def time_there(uow: UnitOfWork) -> datetime:
    return await uow.now()


async def begun_there(
    api: Served, work: Callable[[UnitOfWork], Awaitable[T]], reached: asyncio.Event
) -> asyncio.Task[T]:
    """Work that has come as far as to say so, at the replica; a machine that is busy may need several tries."""
    while True:
        await api.in_use()
        under_way = asyncio.create_task(_awaited(api.reads(work)))
        there = asyncio.create_task(reached.wait())
        await asyncio.wait((under_way, there), return_when=asyncio.FIRST_COMPLETED)
        there.cancel()
        if reached.is_set():
            return under_way


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def server_of(pod: Pod) -> int:
    return int((pod.data / "postmaster.pid").read_text().splitlines()[0])


def processes_of(pod: Pod) -> list[psutil.Process]:
    server = psutil.Process(server_of(pod))
    return [server, *server.children()]
