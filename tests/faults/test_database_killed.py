"""`kill -9` of PostgreSQL in the middle of submits over HTTP: what was acknowledged is there once, all recover."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import httpx
import psutil
import pytest
from sqlalchemy.exc import DBAPIError

from api_service.app import create_app
from api_service.server import serve
from reservation_core.adapters.postgres.connection.migrating import upgrade
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.transactions import DatabaseUnavailableError
from tests.examples import amount
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left, outcomes
from tests.faults.systems.system import System, open_system
from tests.waiting import eventually

ROUNDS = amount(2, 3)
CLIENTS = 16
EACH = amount(6, 12)
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "100"}


@pytest.fixture
def server(session_folder: Path) -> EmbeddedPostgres:
    """A server of this test's own, as durable as in earnest. Its folder is short: it holds a socket."""
    folder = Path(tempfile.mkdtemp(dir=session_folder))
    folder.chmod(0o711)
    server = EmbeddedPostgres(folder / "pg", settings=DURABLE)
    server.start()
    yield server
    server.destroy()
    shutil.rmtree(folder)


@pytest.fixture
async def system(server: EmbeddedPostgres, tmp_path: Path, gpus: str) -> AsyncIterator[System]:
    await upgrade(server.url)
    async with open_system(server.url, tmp_path, gpus) as opened:
        yield opened


def kill_all(server: EmbeddedPostgres) -> None:
    """The postmaster and all its children, at once."""
    assert server.pid is not None
    postmaster = psutil.Process(server.pid)
    for process in [postmaster, *postmaster.children(recursive=True)]:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def start_again(server: EmbeddedPostgres) -> None:
    """As an operator would: the same folder, the same address."""
    server.stop()  # there is nothing to stop; it lets go of the folder
    server.start()


async def connected_again(system: System) -> None:
    """This test's own connections are dead too: use them up."""

    async def works() -> bool:
        try:
            async with system.runtime.uow() as uow:
                await uow.reservations.waiting_totals()
            return await system.rows("SELECT 1") != []
        except (DatabaseUnavailableError, DBAPIError, OSError):
            return False

    await eventually(works)


@asynccontextmanager
async def api(system: System) -> AsyncIterator[httpx.AsyncClient]:
    """The real API over HTTP, with a client that may do everything."""
    secret = system.runtime.ids.new_secret()
    async with system.runtime.uow() as uow:
        digest = system.runtime.ids.digest(secret)
        now = system.runtime.clock.now()
        await uow.identities.create_token("tok-faults", system.owner.user_id, None, digest, None, now)
    stop = asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = create_app(system.runtime, system.settings())
    serving = asyncio.create_task(serve(app, "127.0.0.1:0", stop=stop, ready=address.set_result))
    try:
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(base_url=await address, headers=headers, timeout=60) as client:
            yield client
    finally:
        stop.set()
        await serving


class Submitter:
    """Submits under keys of its own until each is acknowledged; the first answer is what it must always be told."""

    def __init__(self, client: httpx.AsyncClient, system: System) -> None:
        self._client = client
        self._system = system
        self.acknowledged: dict[str, bytes] = {}
        self.refusals = 0

    async def run(self, count: int) -> None:
        """Submit that many jobs; every fourth can run, the others wait for a node that is large enough."""
        for number in range(count):
            await self._until_acknowledged(f"{uuid4()}", runs=number % 4 == 0)

    async def _until_acknowledged(self, key: str, *, runs: bool) -> None:
        body = {"gpus": 1, "duration": 600, "workload": self._system.records.workload()}
        if not runs:
            body["gpus"] = 64

        async def told() -> bool:
            answer = await self.post(key, body)
            if answer is None:
                self.refusals += 1
                await asyncio.sleep(0.05)
                return False
            self.acknowledged[key] = answer
            return True

        await eventually(told)
        assert await self.post(key, body) in (None, self.acknowledged[key])

    async def post(self, key: str, body: dict[str, object]) -> bytes | None:
        """The answer's body when it was accepted; None when the server can't just now."""
        answer = await self._client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
        assert answer.status_code in (202, 503), answer.text
        return answer.content if answer.status_code == 202 else None


@pytest.mark.hypothesis  # for `make explore`, with three times as many submits
async def test_every_acknowledged_submit_survives_the_death_of_the_database(
    system: System, server: EmbeddedPostgres
) -> None:
    acknowledged: dict[str, bytes] = {}
    with system.processor() as processor:
        async with api(system) as client:
            for _ in range(ROUNDS):
                acknowledged |= await one_round(system, server, client)
            await connected_again(system)
            await assert_stored_once(system, acknowledged)
            assert (await client.get("/readyz")).status_code == 200
            await everything_ends(system)
        assert processor.returncode() is None
    await assert_never_doubled(system)


async def one_round(system: System, server: EmbeddedPostgres, client: httpx.AsyncClient) -> dict[str, bytes]:
    """Submit from many sides, kill the database in the middle; returns what was acknowledged in the end."""
    submitters = [Submitter(client, system) for _ in range(CLIENTS)]

    def acknowledged() -> int:
        return sum(len(submitter.acknowledged) for submitter in submitters)

    async with asyncio.TaskGroup() as group:
        for submitter in submitters:
            group.create_task(submitter.run(EACH))
        await eventually(lambda: acknowledged() > CLIENTS)
        kill_all(server)
        assert acknowledged() < CLIENTS * EACH  # in the middle
        await asyncio.to_thread(start_again, server)
    assert sum(submitter.refusals for submitter in submitters) > 0
    return {key: answer for submitter in submitters for key, answer in submitter.acknowledged.items()}


async def assert_stored_once(system: System, acknowledged: dict[str, bytes]) -> None:
    """As many jobs as keys, and exactly those that were told."""
    told = {httpx.Response(202, content=answer).json()["id"] for answer in acknowledged.values()}
    assert len(told) == len(acknowledged) == ROUNDS * CLIENTS * EACH
    assert told == (await outcomes(system)).keys()


async def everything_ends(system: System) -> None:
    """What can run has run to its end; what can't is cancelled."""
    able = [row.id for row in await system.rows("SELECT id FROM reservations WHERE gpus < 64")]
    for job_id in able:
        await system.reaches(job_id, JobStatus.SUCCEEDED)
    for row in await system.rows("SELECT id FROM reservations WHERE gpus = 64"):
        await system.cancel(row.id)
    await assert_nothing_left(system)
    assert system.records.started() == set(able)


async def test_a_processor_waits_for_a_database_that_is_away(system: System, server: EmbeddedPostgres) -> None:
    """Jobs that run meanwhile get their true end."""
    gate = system.records.path.with_name("gate")
    work = f'until [ -e "{gate}" ]; do sleep 0.05; done'
    with system.processor() as processor:
        [job_id] = await system.submit(system.new(system.records.workload(4, work=work)))
        await system.reaches(job_id, JobStatus.RUNNING)
        kill_all(server)
        gate.touch()
        await eventually(lambda: not system.records.open())
        await asyncio.to_thread(start_again, server)

        await connected_again(system)
        view = await system.reaches(job_id, JobStatus.FAILED)
        assert view.reservation.exit_code == 4
        await assert_nothing_left(system)
        assert processor.returncode() is None
