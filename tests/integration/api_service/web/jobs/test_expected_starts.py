"""When a job will start, on the pages that show it: as learnt, with how sure that is, and as promised."""

from datetime import datetime
from typing import Any

import httpx

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import execute
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn


async def told(runtime: Runtime, job: dict[str, Any], planned: str, likely: tuple[str, str] | None = None) -> None:
    """What the planner writes for a job: planned and predicted times of 1 January 2030, and the promise."""
    p50, p90 = likely or (None, None)
    times = [None if time is None else datetime.fromisoformat(f"2030-01-01T{time}Z") for time in (planned, p50, p90)]
    await execute(
        runtime,
        "INSERT INTO wait_estimates (reservation_id, position, reason_code, reason, estimated_start_at, "
        "estimated_start_p50, estimated_start_p90, planned_at) VALUES (:id, 1, 'waiting_for_gpus', 'It waits.', "
        ":planned, :p50, :p90, now())",
        id=job["id"],
        planned=times[0],
        p50=times[1],
        p90=times[2],
    )
    await execute(
        runtime,
        "INSERT INTO start_promises (reservation_id, promised_start_at, made_at) VALUES (:id, :planned, now())",
        id=job["id"],
        planned=times[0],
    )


async def test_rest_has_it_while_the_job_waits(runtime: Runtime, alice: httpx.AsyncClient) -> None:
    job = await submitted(alice)
    assert job["estimated_start"] is None
    await told(runtime, job, "18:00", ("10:30", "11:45"))
    likely = {"p50": "2030-01-01T10:30:00.000Z", "p90": "2030-01-01T11:45:00.000Z"}
    (entry,) = (await alice.get("/v1/queue")).json()["items"]
    shown = (await alice.get(f"/v1/jobs/{job['id']}")).json()
    assert [entry["estimated_start"], shown["estimated_start"]] == [likely, likely]
    assert shown["estimated_start_at"] == shown["promised_start_at"] == "2030-01-01T18:00:00.000Z"
    assert (await alice.post(f"/v1/jobs/{job['id']}/cancel")).json()["estimated_start"] is None


async def test_pages_say_it_in_words(runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    job = await submitted(alice, name="train")
    await told(runtime, job, "18:00", ("10:30", "11:45"))
    browser = await browsing("alice")
    queue = words(await browser.get("/queue"))
    assert "starts about Tue 1 Jan 2030 10:30 UTC, in" in queue
    assert ", nine times in ten by Tue 1 Jan 2030 11:45 UTC" in queue
    cell = (
        "Tue 1 Jan 2030 10:30 nine times in ten by Tue 1 Jan 2030 11:45 by Tue 1 Jan 2030 18:00 at the latest: promised"
    )
    assert cell in queue
    assert "about Tue 1 Jan 2030 10:30" in words(await browser.get("/jobs"))
    page = words(await browser.get(f"/jobs/{job['id']}"))
    assert "Starts about Tue 1 Jan 2030 10:30 UTC in" in page
    assert "nine times in ten by Tue 1 Jan 2030 11:45 UTC Promised start Tue 1 Jan 2030 18:00 UTC" in page
    picture = page.partition("What it waits for")[2]
    assert "It starts about Tue 1 Jan 2030 10:30 UTC" in picture
    assert "nine times in ten by Tue 1 Jan 2030 11:45 UTC . That is learnt from how long jobs really run." in picture
    # Also of one that waits for others, and has a slot after them.
    await execute(runtime, "UPDATE reservations SET reason_code = 'waiting_for_jobs' WHERE id = :id", id=job["id"])
    page = words(await browser.get(f"/jobs/{job['id']}"))
    assert "Starts about Tue 1 Jan 2030 10:30 UTC in" in page
    assert "Promised start Tue 1 Jan 2030 18:00 UTC" in page


async def test_two_times_that_read_the_same_are_said_once(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    job = await submitted(alice)
    await told(runtime, job, "18:00", ("10:30:02", "10:30:40"))
    for path in ("/queue", f"/jobs/{job['id']}"):
        page = words(await (await browsing("alice")).get(path))
        assert "10:30" in page
        assert "nine times in ten" not in page


async def test_starts_first_sorts_by_what_is_shown(
    runtime: Runtime, browsing: SignedIn, alice: httpx.AsyncClient
) -> None:
    for name, planned, likely in (
        ("second", "12:00", None),
        ("third", "14:00", ("13:00", "13:30")),
        ("first", "18:00", ("11:00", "11:30")),
    ):
        await told(runtime, await submitted(alice, name=name), planned, likely)
    page = words((await (await browsing("alice")).get("/queue?sort=starts")).partition("<tbody>")[2])
    assert page.index("first") < page.index("second") < page.index("third")
