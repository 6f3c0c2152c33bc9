"""The page Queue: one's own place and why, and of others no more than numbers."""

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, execute
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn

HOSTILE = "<script>alert('x')</script>\"'&"


async def test_nobody_waits(browsing: SignedIn) -> None:
    page = words(await (await browsing("alice")).get("/queue"))
    assert "No job waits." in page
    assert "submit a job" in page


async def test_ones_own_jobs_with_place_and_reason(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 1))
    await submitted(bob, name="his work", gpu_type="h100")
    hers = await submitted(alice, name="her work", gpu_type="h100", gpus=2)
    page = await (await browsing("alice")).get("/queue")
    told = words(page)
    assert f"/jobs/{hers['id']}" in page
    assert "her work is waiting for its place." in told
    await execute(
        runtime,
        "INSERT INTO wait_estimates (reservation_id, position, reason_code, reason, planned_at) "
        "VALUES (:id, 2, 'behind_in_line', 'Others stand before it.', now())",
        id=hers["id"],
    )
    told = words(await (await browsing("alice")).get("/queue"))
    assert "her work is number 2 in the queue for h100. Others stand before it." in told
    assert "2 jobs wait for 3 h100" in told
    assert "his work" not in page
    assert "bob" not in told
    assert '<th scope="col">User</th>' not in page


async def test_what_is_estimated_and_promised_is_told(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    job = await submitted(alice)
    await execute(
        runtime,
        "INSERT INTO wait_estimates (reservation_id, position, estimated_start_at, reason_code, reason, planned_at) "
        "VALUES (:id, 1, '2030-01-01 10:30Z', 'waiting_for_gpus', 'Next in line: it starts soon.', now())",
        id=job["id"],
    )
    await execute(
        runtime,
        "INSERT INTO start_promises (reservation_id, promised_start_at, made_at) "
        "VALUES (:id, '2030-01-01 11:45Z', now())",
        id=job["id"],
    )
    page = words(await (await browsing("alice")).get("/queue"))
    assert "Next in line: it starts soon." in page
    assert "Tue 1 Jan 2030 10:30" in page
    assert "by Tue 1 Jan 2030 11:45 at the latest: promised" in page
    (entry,) = (await alice.get("/v1/queue")).json()["items"]
    assert entry["promised_start_at"] == "2030-01-01T11:45:00.000Z"
    await execute(runtime, "UPDATE wait_estimates SET estimated_start_at = NULL")
    for address, said in (
        ("/queue", "promised by Tue 1 Jan 2030 11:45 : can't be kept as things are now"),
        (f"/jobs/{job['id']}", "Promised start Tue 1 Jan 2030 11:45 UTC can't be kept as things are now"),
        (f"/jobs/{job['id']}/cancel", "The job loses place 1"),
    ):
        page = words(await (await browsing("alice")).get(address))
        assert said in page, address
        assert "its promised start" not in page


async def test_administrators_see_the_whole_line(
    browsing: SignedIn, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    await submitted(bob, name="his work")
    await submitted(alice, name=HOSTILE)
    page = await (await browsing("root")).get("/queue")
    assert "<script>alert" not in page
    told = words(page)
    assert "his work" in told
    assert HOSTILE in told
    assert "alice" in told


async def test_jobs_of_others_are_only_counted(browsing: SignedIn, bob: httpx.AsyncClient) -> None:
    await submitted(bob, name="his work")
    page = await (await browsing("alice")).get("/queue")
    assert "None of your jobs waits." in words(page)
    assert "1 job waits for 1 GPU of any type" in words(page)
    assert "his work" not in page


async def test_a_smaller_job_that_came_later_has_the_place_before(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    places = {"large work": 2, "small work": 1}
    for name, place in places.items():
        job = await submitted(alice, name=name)
        await execute(
            runtime,
            "INSERT INTO wait_estimates (reservation_id, position, reason_code, reason, planned_at) "
            "VALUES (:id, :place, 'waiting_for_gpus', 'It waits.', now()) RETURNING position",
            id=job["id"],
            place=place,
        )
    browser = await browsing("alice")
    told = words(await browser.get("/queue"))
    assert "small work is number 1 in the queue for any type." in told
    assert "Your waiting jobs, by place among jobs that ask for the same type" in told
    assert told.rindex("small work") < told.index("large work")
    by_place = await browser.get("/queue?sort=place")
    assert by_place.index(">small work<") < by_place.index(">large work<")
    assert 'aria-sort="ascending"' in by_place


async def test_a_long_line_comes_in_pages(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    for _ in range(51):
        await submitted(alice)
    browser = await browsing("alice")
    page = await browser.get("/queue")
    assert page.count('<tr id="job-') == 50
    assert "by priority and arrival; small jobs may start first: sort by place" in words(page)
    assert '<a href="/queue?sort=place">sort by place</a>' in page
    assert "by priority and arrival" not in words(await browser.get("/queue?sort=place"))
    cursor = page.partition('href="/queue?cursor=')[2].partition('"')[0]
    assert cursor
    part = await browser.client.get(f"/queue?cursor={cursor}", headers={"HX-Request": "true"})
    assert part.text.count('<tr id="job-') == 1
    assert "<html" not in part.text
    assert "To the beginning of the queue" in words(part.text)


@pytest.mark.parametrize("cursor", ["nonsense", "%3Cscript%3E"])
async def test_a_bad_cursor_leads_to_the_beginning(browsing: SignedIn, cursor: str) -> None:
    answer = await (await browsing("alice")).client.get(f"/queue?cursor={cursor}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/queue")
