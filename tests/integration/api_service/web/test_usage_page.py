"""Usage on a page: one's own, the same numbers as over REST, and a file of them."""

from datetime import timedelta

import httpx

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings import calendars
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn


async def test_nothing_was_held_at_first(browsing: SignedIn) -> None:
    assert "Nothing was held in this time" in words(await (await browsing("alice")).get("/usage"))


async def test_what_was_held_is_shown_to_whom_it_was_and_to_administrators(
    browsing: SignedIn, runtime: Runtime, alice: httpx.AsyncClient
) -> None:
    await calendars.add_nodes(runtime, node1=("h100", 4))
    async with runtime.uow() as uow:
        now = await uow.now()
    start = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    asked = {"gpus": 2, "start": start.isoformat(), "duration": "PT2H"}
    assert (await alice.post("/v1/bookings", json=asked)).status_code == 201
    browser = await browsing("alice")
    for path in ("/usage", "/usage?by=project&span=year", "/usage?by=gpu_type&span=day"):
        await browser.get(path)
    assert (await browser.client.get("/usage.csv?by=user&span=day")).headers["content-type"].startswith("text/csv")


async def test_what_is_no_time_is_refused(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    for wrong in (
        "span=x",
        "by=x",
        "span=dates",
        "span=dates&from=2026-01-01&to=x",
        "span=dates&from=9999-12-31&to=9999-12-31",
    ):
        assert (await browser.client.get(f"/usage?{wrong}")).status_code == 422, wrong
    assert (await browser.client.get("/usage?span=dates&from=2020-01-01&to=2026-01-01")).status_code == 422
