"""Usage on a page: one's own, the same numbers as over REST, and a file of them."""

from datetime import timedelta

import httpx

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings import calendars
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.policy.rules_set import earlier, put
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


async def test_costs_are_shown_where_gpu_hours_have_a_price(
    browsing: SignedIn, runtime: Runtime, alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await calendars.add_nodes(runtime, node1=("h100", 4))
    booking = await calendars.booked(alice, calendars.at(1), gpus=2, gpu_type="h100")
    await earlier(runtime, 5, booking["id"])
    browser = await browsing("alice")
    assert "Cost" not in words(await browser.get("/usage"))
    await put(root, "gpu_type:h100", cost_per_gpu_hour="620.125 EUR")
    shown = words(await browser.get("/usage"))
    assert shown.count("1,240.25 EUR") == 2
    assert "at current prices" in shown
    asked = {"gpus": "2", "gpu_type": "h100", "duration": "2h", "command": "true"}
    verdict = await browser.send("/submit/verdict", **asked)
    assert "about 2,480.50 EUR" in words(verdict.text)


async def test_the_plot_shows_how_busy_the_gpus_of_a_project_were(
    browsing: SignedIn, runtime: Runtime, alice: httpx.AsyncClient
) -> None:
    await calendars.add_nodes(runtime, node1=("h100", 4))
    now = runtime.clock.now().replace(minute=0, second=0, microsecond=0)
    for project, index, busy in (("vision", 0, 0.5), ("vision-2", 1, 1.0)):
        job = (await submitted(alice))["id"]
        await calendars.execute(
            runtime, "UPDATE reservations SET project = :project WHERE id = :job", project=project, job=job
        )
        await calendars.execute(
            runtime,
            "INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at, ran_from) "
            "SELECT :job, 1, g.id, 0, tstzrange(:start, :end), true, :start, :start "
            "FROM gpus g WHERE g.index = :index",
            job=job, start=now - timedelta(hours=2), end=now - timedelta(hours=1), index=index,
        )  # fmt: skip
        await calendars.execute(
            runtime,
            "INSERT INTO gpu_use_sums SELECT :at, id, :project, 'h100', 360, CAST(:busy AS float8), NULL FROM users "
            "WHERE name = 'alice'",
            at=now - timedelta(hours=2), project=project, busy=360 * busy,
        )  # fmt: skip
    browser = await browsing("alice")
    page = await browser.get("/usage?by=project&span=day")
    assert "2 GPU-hours held, 2 used, 1.5 busy" in page
    assert 'href="/usage?by=project&amp;span=day&amp;q=vision"' in page
    alone = await browser.get("/usage?by=project&span=day&q=vision")
    assert "1 GPU-hours held, 1 used, 0.5 busy" in alone
    assert "of vision alone" in words(alone)
    assert "q=vision-2" in alone, "its neighbour stays in the table"
    both = await browser.get("/usage?by=project&span=day&q=visio")
    assert "2 GPU-hours held" in both
    assert "of names with “visio” alone" in words(both)
    assert page.count('class="busy"') == alone.count('class="busy"') == 1


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
