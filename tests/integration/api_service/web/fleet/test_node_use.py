"""The page of a node's use, as a browser without scripts has it, and the CSV of pages."""

from datetime import datetime, timedelta

import httpx
import pytest

from reservation_core.domain.gpu_use.samples import GpuSample
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.gpu_use.store_samples import store_samples
from tests.integration.api_service.bookings.calendars import add_nodes
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def now(runtime: Runtime) -> datetime:
    """On a node with two GPUs, one of which has samples."""
    await add_nodes(runtime, a=("h100", 2))
    now = runtime.clock.now().replace(microsecond=0)
    await store_samples(
        runtime.uow,
        [GpuSample("GPU-a-0", now - minutes * MINUTE, 0.8, 61 * 2**30, None, 412.0) for minutes in (90, 20, 10)],
    )
    return now


async def test_each_gpu_of_a_node_has_a_graph(browsing: SignedIn, now: datetime) -> None:
    browser = await browsing("alice")
    page = await browser.get("/nodes/a")
    assert "a/0 80% 80% 61 GiB 412 W" in words(page)
    assert "a/1 no data" in words(page)
    assert page.count("<polygon") == 2
    assert (await browser.get("/nodes/a?last=day")).count("<polygon") == 3
    assert 'href="/nodes/a/use.csv?last=hour"' in page
    assert (await browser.client.get("/nodes/z")).status_code == 404
    assert (await browser.client.get("/nodes/a?last=year")).status_code == 422
    assert 'href="/nodes/a"' in await browser.part("/now/card?card=a/0")


async def test_a_node_shows_what_has_its_gpus(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient, root: httpx.AsyncClient, now: datetime
) -> None:
    booking = {"gpus": 1, "node": "a", "duration": "PT2H", "title": "demo"}
    soon = (now + timedelta(days=1)).replace(second=0)
    made = await alice.post("/v1/bookings", json={**booking, "start": soon.isoformat()})
    assert made.status_code == 201, made.text
    browser = await browsing("alice")
    page = await browser.get("/nodes/a")
    assert "takes jobs GPU 0 h100 Free GPU 1 h100 Free" in words(page)
    assert "Your booking demo" in words(page)
    assert f'href="/bookings/{made.json()["id"]}"' in page
    assert 'href="/calendar?by=card&amp;node=a"' in page
    assert "Administer this node" not in page
    cordoned = await root.post("/v1/nodes/a/cordon", json={"reason": "a fan is loud"})
    assert cordoned.status_code == 200, cordoned.text
    others = words(await (await browsing("bob")).get("/nodes/a"))
    assert "gets nothing new Cordoned by an administrator" in others
    assert "demo" not in others
    assert 'href="/admin/nodes?node=a"' in await (await browsing("root")).get("/nodes/a")


async def test_the_figures_are_there_as_csv(browsing: SignedIn, now: datetime) -> None:
    browser = await browsing("alice")
    for last, samples in (("hour", 2), ("day", 3)):
        answer = await browser.client.get(f"/nodes/a/use.csv?last={last}")
        assert answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["content-disposition"] == f'attachment; filename="use-a-{last}.csv"'
        assert answer.text.count("GPU-a-0") == samples
