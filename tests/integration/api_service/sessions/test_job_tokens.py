"""What a job's own token may do over REST: extend its job while it runs, and nothing else."""

from collections.abc import AsyncIterator

import httpx
import pytest

from reservation_core.domain.sessions.job_tokens import job_token
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.sessions.server_keys import job_token_key
from tests.database.sql import sql
from tests.integration.api_service.served import Served
from tests.waiting import PATIENCE_S


@pytest.fixture
async def key(runtime: Runtime) -> bytes:
    async with runtime.uow() as uow:
        return await job_token_key(uow, runtime.clock.now())


@pytest.fixture
async def inside(served: Served, key: bytes, job: str) -> AsyncIterator[httpx.AsyncClient]:
    """A program in the job."""
    headers = {"Authorization": f"Bearer {job_token(key, job, 1)}"}
    async with httpx.AsyncClient(base_url=served.base_url, headers=headers, timeout=PATIENCE_S) as client:
        yield client


async def _last_actor(runtime: Runtime, job: str) -> str:
    async with runtime.uow() as uow:
        found = await sql(uow, "SELECT actor FROM events WHERE reservation_id = :job AND kind = 'extended'", job=job)
        return str(found.scalar_one())


async def test_a_program_extends_its_own_job(inside: httpx.AsyncClient, job: str, runtime: Runtime) -> None:
    answer = await inside.post(f"/v1/jobs/{job}/extend", json={"by": "PT30M"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["duration"] == "PT1H30M"
    assert await _last_actor(runtime, job) == "alice"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/{job}"),
        ("POST", "/v1/jobs/{job}/cancel"),
        ("POST", "/v1/jobs/job-another/extend"),
        ("POST", "/v1/jobs"),
        ("POST", "/v1/tokens"),
        ("GET", "/v1/jobs/{job}/exec"),
    ],
)
async def test_it_can_do_nothing_else(inside: httpx.AsyncClient, job: str, method: str, path: str) -> None:
    answer = await inside.request(method, path.format(job=job), json={} if method == "POST" else None)
    assert answer.status_code == 403
    assert "extends that job and passes its files, and can do nothing else" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        ("UPDATE reservations SET attempt = 2", 409),
        ("UPDATE reservations SET status = 'ending', outcome = 'cancelled'", 409),
        ("UPDATE users SET disabled_at = now()", 401),
    ],
)
async def test_it_ends_with_the_attempt_and_the_owner(
    inside: httpx.AsyncClient, job: str, runtime: Runtime, statement: str, status: int
) -> None:
    async with runtime.uow() as uow:
        await sql(uow, statement)
    answer = await inside.post(f"/v1/jobs/{job}/extend", json={"by": "PT30M"})
    assert answer.status_code == status, answer.text


async def test_a_wrong_one_is_refused_and_counted(served: Served, job: str) -> None:
    headers = {"Authorization": f"Bearer {job_token(b'w' * 32, job, 1)}"}
    async with httpx.AsyncClient(base_url=served.base_url, headers=headers, timeout=PATIENCE_S) as client:
        statuses = [(await client.post(f"/v1/jobs/{job}/extend", json={"by": "PT1M"})).status_code for _ in range(130)]
    assert set(statuses) == {401, 429}
    assert statuses[0] == 401
