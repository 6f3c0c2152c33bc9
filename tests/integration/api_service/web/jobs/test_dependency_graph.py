"""The drawing of the jobs around a job, on its page."""

import re

import httpx
import pytest

from api_service.web.jobs import dependency_graph
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import execute
from tests.integration.api_service.web.browsing import Browser, words
from tests.integration.api_service.web.conftest import SignedIn
from tests.integration.api_service.web.jobs.test_job_pages import submitted

_PART = re.compile(r'<section class="graph-part".*?</section>', re.DOTALL)
_JOB = re.compile(r'<a href="/jobs/([^"]+)"')


async def drawn(browser: Browser, job: str) -> str:
    """The drawing on a job's page; empty without one."""
    found = _PART.search(await browser.get(f"/jobs/{job}"))
    return found[0] if found else ""


def needs(*jobs: str, when: str = "succeeded") -> list[dict[str, str]]:
    return [{"job": job, "when": when} for job in jobs]


async def test_all_around_a_job_are_drawn_from_left_to_right(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    data = await submitted(alice, name="data")
    lone = await submitted(alice, name="lone")
    train = await submitted(alice, name="train", after=needs(data))
    alarm = await submitted(alice, name="alarm <b>", after=needs(train, when="failed"))
    both = await submitted(alice, after=needs(train) + needs(data, when="started"))
    browser = await browsing("alice")
    assert await drawn(browser, lone) == ""
    part = await drawn(browser, train)
    order = _JOB.findall(part)
    assert (order[0], order[1], set(order)) == (data, train, {data, train, alarm, both})
    assert part.count('aria-current="true"') == 1
    text = words(part)
    assert text.startswith("Dependencies An arrow leads to a job that waits.")
    assert f"data queued {data}" in text
    assert f"alarm <b> queued {alarm} (waits until train fails)" in text
    assert f"{both} queued (waits until train succeeds, data starts)" in text
    assert [part.count(f'text-anchor="end">{word}<') for word in ("succeeds", "fails", "starts", "ends")] == [
        2,
        1,
        1,
        0,
    ]
    assert f'hx-get="/jobs/{train}/graph"' in part
    again = await browser.client.get(f"/jobs/{train}/graph", headers={"HX-Request": "true"})
    assert (again.status_code, set(_JOB.findall(again.text))) == (200, set(order))
    assert set(_JOB.findall(await drawn(browser, alarm))) == {data, train, alarm}, "not what waits beside it"
    assert (await browser.client.get(f"/jobs/{lone}/graph", headers={"HX-Request": "true"})).status_code == 404
    for job in (both, alarm, train, data):
        await alice.post(f"/v1/jobs/{job}/cancel")
    over = await browser.client.get(f"/jobs/{train}/graph", headers={"HX-Request": "true"})
    assert (over.status_code, set(_JOB.findall(over.text))) == (286, set(order)), "nothing changes any more"


async def test_others_see_of_it_what_they_may_see(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    data = await submitted(alice, name="secret plans")
    train = await submitted(alice, after=needs(data))
    last = await submitted(alice, after=needs(train))
    (await alice.put(f"/v1/jobs/{train}/shares/bob")).raise_for_status()
    bob = await browsing("bob")
    assert await drawn(bob, train) == ""
    assert "secret plans" not in await bob.get(f"/jobs/{train}")
    (await alice.put(f"/v1/jobs/{last}/shares/bob")).raise_for_status()
    assert _JOB.findall(await drawn(bob, train)) == [train, last]
    root = await browsing("root")
    assert _JOB.findall(await drawn(root, train)) == [data, train, last]


async def test_a_cancelled_array_ends_until_its_elements_have(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    """As in the lists: its row waits until then."""
    many = await submitted(alice, array={"size": 2})
    last = await submitted(alice, after=needs(many, when="ended"))
    browser = await browsing("alice")
    assert f"{many} queued" in words(await drawn(browser, last))
    await execute(runtime, f"UPDATE reservations SET started_at = now() WHERE id = '{many}'")
    assert f"{many} running" in words(await drawn(browser, last))
    await execute(runtime, f"UPDATE reservations SET reason_code = 'cancelled_by_user' WHERE id = '{many}'")
    assert f"{many} ending" in words(await drawn(browser, last))


async def test_sixty_are_drawn_and_the_others_counted(
    browsing: SignedIn, alice: httpx.AsyncClient, runtime: Runtime
) -> None:
    first = await submitted(alice)
    await execute(
        runtime,
        f"""
        INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, nodes, duration,
                                  priority, created_at, changed_at, workload, held)
        SELECT 'job-c' || n, kind, user_id, 'queued', 'waiting_for_jobs', reason, gpus, nodes, duration,
               priority, created_at, changed_at, workload, true
        FROM reservations, generate_series(1, 999) AS n WHERE id = '{first}' ORDER BY n;
        """,
    )
    await execute(
        runtime,
        f"""
        INSERT INTO job_dependencies (job_id, needs_id, condition, place)
        SELECT 'job-c' || n, CASE n WHEN 1 THEN '{first}' ELSE 'job-c' || n - 1 END, 'ended', 0
        FROM generate_series(1, 999) AS n;
        """,
    )
    browser = await browsing("alice")
    part = await drawn(browser, first)
    assert len(set(_JOB.findall(part))) == 60
    assert "And 940 more. Open a job at the edge to see more" in words(part)
    middle = await drawn(browser, "job-c500")
    assert {f"job-c{n}" for n in range(471, 531)} == set(_JOB.findall(middle))


async def test_what_a_job_waits_for_is_drawn_however_many_lines_there_are(
    browsing: SignedIn, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependency_graph, "_MOST_LINKS", 2)
    first = [await submitted(alice) for _ in range(2)]
    second = [await submitted(alice, after=needs(*first)) for _ in range(2)]
    last = await submitted(alice, after=needs(*second))
    for job in (last, *first):
        assert {job, *second} <= set(_JOB.findall(await drawn(await browsing("alice"), job)))


async def test_what_was_counted_is_not_said_to_be_the_least(
    browsing: SignedIn, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependency_graph, "MOST_JOBS", 3)
    chain = [await submitted(alice)]
    for _ in range(6):
        chain.append(await submitted(alice, after=needs(chain[-1])))
    browser = await browsing("alice")
    monkeypatch.setattr(dependency_graph, "_COUNTED", 4)
    assert "And 4 more. Open" in words(await drawn(browser, chain[3]))
    assert "And at least 3 more. Open" in words(await drawn(browser, chain[0]))
