"""The use of GPUs on the page of a job, as a browser without scripts has it."""

from datetime import datetime, timedelta

import httpx
import pytest

from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.integration.api_service.bookings.calendars import add_nodes, execute
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def now(runtime: Runtime) -> datetime:
    return runtime.clock.now().replace(microsecond=0)


@pytest.fixture
async def job(runtime: Runtime, alice: httpx.AsyncClient, now: datetime) -> str:
    """A job that has two GPUs for half an hour."""
    await add_nodes(runtime, a=("h100", 2))
    job_id: str = (await submitted(alice, gpus=2))["id"]
    await execute(
        runtime,
        "UPDATE reservations SET status = 'running', attempt = 1, started_at = :start, ends_at = :end WHERE id = :job",
        job=job_id, start=now - 30 * MINUTE, end=now + 30 * MINUTE,
    )  # fmt: skip
    await execute(
        runtime,
        "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at) "
        "SELECT :job, 1, g.id, 0, tstzrange(:start, :end), true, :start FROM gpus g",
        job=job_id, start=now - 30 * MINUTE, end=now + 30 * MINUTE,
    )  # fmt: skip
    return job_id


async def test_a_graph_of_each_gpu(runtime: Runtime, browsing: SignedIn, job: str, now: datetime) -> None:
    samples = [
        GpuSample("GPU-a-0", now - minutes * MINUTE, 0.8, 61 * 2**30, None, 412.0, xid=79) for minutes in (20, 10)
    ]
    await store_samples(runtime.uow, samples)
    browser = await browsing("alice")
    for read, path in ((browser.get, f"/jobs/{job}"), (browser.part, f"/jobs/{job}/use")):
        page = await read(path)
        shown = words(page)
        assert "Use of GPUs" in shown
        assert "a/0 80% 80% 61 GiB 412 W Xid 79" in shown
        assert "a/1 no data" in shown
        assert 'aria-label="Utilisation of a/0: 80% on average, 80% at most"' in page
        assert page.count('aria-labelledby="use-title"') == path.count("/jobs/") - path.count("/use")
        assert page.count("<polygon") == 2  # between the samples there is a gap
        assert f'href="/jobs/{job}/use.csv"' in page
    assert f'hx-get="/jobs/{job}/use"' in await browser.get(f"/jobs/{job}")
    assert (await browser.client.get(f"/jobs/{job}/use.csv")).text.count("GPU-a-0") == len(samples)


async def test_without_samples_the_page_says_so(browsing: SignedIn, job: str) -> None:
    page = words(await (await browsing("alice")).get(f"/jobs/{job}"))
    assert "No data: there are no samples of its GPUs." in page


async def test_a_job_that_has_not_started_has_no_graph(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, a=("h100", 2))
    waiting = (await submitted(alice))["id"]
    assert "Use of GPUs" not in await (await browsing("alice")).get(f"/jobs/{waiting}")


async def test_others_see_no_graph(browsing: SignedIn, job: str) -> None:
    answer = await (await browsing("bob")).client.get(f"/jobs/{job}/use", headers={"HX-Request": "true"})
    assert answer.status_code == 404


async def test_a_job_that_is_warned_is_kept_by_a_click(
    runtime: Runtime, browsing: SignedIn, job: str, now: datetime
) -> None:
    await execute(
        runtime,
        "UPDATE reservations SET idle_since = :start, idle_warned_at = :start, idle_release_at = :end WHERE id = :job",
        job=job, start=now - 25 * MINUTE, end=now + 5 * MINUTE,
    )  # fmt: skip
    browser = await browsing("alice")
    page = await browser.get(f"/jobs/{job}")
    assert "Its GPUs have been idle since" in words(page)
    assert f'action="/jobs/{job}/keep"' in page
    assert (await (await browsing("bob")).send(f"/jobs/{job}/keep")).status_code == 404
    done = await browser.send(f"/jobs/{job}/keep")
    assert done.headers["location"] == f"/jobs/{job}"
    page = words(await browser.get(f"/jobs/{job}"))
    assert f"{job} keeps its GPUs." in page
    assert "Its GPUs have been idle" not in page
    again = await browser.send(f"/jobs/{job}/keep")
    assert again.status_code == 409
    assert "is not about to end because of idle GPUs" in words(again.text)
