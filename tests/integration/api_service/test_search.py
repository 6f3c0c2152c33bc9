"""What a search finds, for whom, and in what order."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.bookings.calendars import add_nodes, asked, at
from tests.integration.api_service.callers import JOB
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn, browsing  # noqa: F401 - a fixture

Calling = Callable[[str], httpx.AsyncClient]


async def named(client: httpx.AsyncClient, name: str) -> str:
    answer = await client.post("/v1/jobs", json={**JOB, "name": name})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def found(client: httpx.AsyncClient, q: str, **more: Any) -> list[tuple[str, str]]:
    answer = await client.get("/v1/search", params={"q": q, **more})
    assert answer.status_code == 200, answer.text
    return [(hit["kind"], hit["id"]) for hit in answer.json()["items"]]


async def test_a_part_of_a_name_in_any_case_and_the_beginning_of_an_id(alice: httpx.AsyncClient) -> None:
    job = await named(alice, "Train 50%_of it")
    assert await found(alice, "ain 50%_OF") == [("job", job)]
    assert await found(alice, job) == [("job", job)]
    assert await found(alice, job[:8].upper()) == [("job", job)]
    assert ("job", job) in await found(alice, job.removeprefix("job-")[:3])
    assert await found(alice, "50__of") == []


async def test_letters_of_all_alphabets_are_found_in_any_case(alice: httpx.AsyncClient) -> None:
    job = await named(alice, "Übung Ждать STRASSE")
    for q in ("übung", "Übung", "ÜBUNG", "ждать", "ЖДАТЬ", "strasse"):
        assert await found(alice, q) == [("job", job)], q


async def test_the_best_match_is_first(alice: httpx.AsyncClient) -> None:
    whole, begins, within = [await named(alice, name) for name in ("run", "run 2", "long run")]
    ended = await named(alice, "run 3")
    await alice.post(f"/v1/jobs/{ended}/cancel")
    assert await found(alice, "run") == [("job", whole), ("job", begins), ("job", ended), ("job", within)]
    assert await found(alice, "run", limit=1) == [("job", whole)]


async def test_everybody_finds_what_they_may_open(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    await add_nodes(runtime, alicorn=("h100", 4))
    job = await named(alice, "alices secret")
    booking = (await alice.post("/v1/bookings", json=asked(at(5), duration=3600, title="alices slot"))).json()["id"]
    mine = [("job", job), ("booking", booking), ("node", "alicorn")]
    assert await found(alice, "alic") == mine
    assert await found(bob, "alic") == [("node", "alicorn")]
    assert await found(root, "alic") == [*mine, ("user", "alice")]
    for client, seen in ((alice, True), (bob, False), (root, True)):
        assert await found(client, job) == ([("job", job)] if seen else [])
        assert await found(client, booking) == ([("booking", booking)] if seen else [])
    await alice.delete(f"/v1/bookings/{booking}")
    assert await found(alice, "alices slot") == [("booking", booking)]


async def test_a_job_is_found_by_those_it_is_shared_with_after_their_own(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, runtime: Runtime
) -> None:
    await bob.get("/v1/users/me")
    shared = await named(alice, "train shared")
    assert (await alice.put(f"/v1/jobs/{shared}/shares/bob")).status_code == 200
    own = await named(bob, "train mine")
    assert await found(bob, "train") == [("job", own), ("job", shared)]
    assert await found(bob, shared) == [("job", shared)]
    assert await found(alice, "train") == [("job", shared)]
    await alice.post(f"/v1/jobs/{shared}/cancel")
    assert await found(bob, shared) == [("job", shared)]
    await alice.delete(f"/v1/jobs/{shared}/shares/bob")
    assert await found(bob, "train") == [("job", own)]
    assert await found(bob, shared) == []


@pytest.mark.parametrize("q", ["", " ", "x" * 101, "a\nb", "\x00"])
async def test_a_text_that_is_none_is_refused(alice: httpx.AsyncClient, q: str) -> None:
    assert (await alice.get("/v1/search", params={"q": q})).status_code == 422


async def test_an_old_job_is_found_by_its_whole_id_alone(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    old = await named(alice, "oldest of all")
    await alice.post(f"/v1/jobs/{old}/cancel")
    async with runtime.uow() as uow:
        await sql(
            uow,
            "INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, nodes, duration,"
            " priority, workload, created_at, changed_at, finished_at)"
            " SELECT 'job-n' || n, 'job', user_id, 'newer', status, reason_code, reason, gpus, nodes, duration,"
            " priority, workload, created_at, changed_at, finished_at"
            " FROM reservations, generate_series(1, 500) AS n WHERE id = :old",
            old=old,
        )
    assert await found(alice, "oldest") == []
    assert await found(alice, old[:-1]) == []
    assert await found(alice, old) == [("job", old)]
    assert len(await found(alice, "newer")) == 8


async def test_a_page_has_the_same_answer_without_scripts(
    browsing: SignedIn,  # noqa: F811
    alice: httpx.AsyncClient,
) -> None:
    job = await named(alice, "train <b>")
    browser = await browsing("alice")
    page = await browser.get("/search?q=TRAIN")
    assert f'<a href="/jobs/{job}">train &lt;b&gt;</a>' in page
    assert re.search(r'<form method="get" action="/search".*?name="q"[^>]*value="TRAIN"', page, re.DOTALL)
    assert "Nothing matches “zzz”" in words(await browser.get("/search?q=zzz"))
    every = words(await browser.get("/search"))
    assert "Calendar g c" in every
    assert "Policy" not in every
    part = await browser.client.get("/search", params={"q": "cal"}, headers={"HX-Request": "true"})
    assert part.json()[0]["links"][0] == {"name": "Calendar", "detail": "g c", "href": "/calendar"}
    assert (await browser.client.get("/search", params={"q": "a\nb"})).status_code == 422
    assert "Submit a job" in words(await browser.get("/shortcuts"))
