"""A form that is sent twice, by a second click while the answer is slow, does once what it says."""

import asyncio
import re

import httpx

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import add_nodes, at, booked, execute
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.policy.rules_set import put
from tests.integration.api_service.web.browsing import Browser, words
from tests.integration.api_service.web.conftest import SignedIn

_FORM = re.compile(r'<form method="post"(.*?)</form>', re.DOTALL)
_KEY = re.compile(r'name="key" value="([^"]+)"')


async def keyed(browser: Browser, page: str) -> dict[str, str]:
    """What the forms of a page carry."""
    text = await browser.get(page)
    found = _KEY.search(text)
    assert found is not None
    return {"csrf_token": await browser.token(page), "key": found[1]}


async def clicked_twice(browser: Browser, path: str, fields: dict[str, str]) -> list[httpx.Response]:
    """Both answers: the second request comes before the first one is answered."""
    return await asyncio.gather(*(browser.client.post(path, data=fields) for _ in range(2)))


async def test_every_form_carries_a_key_once(
    browsing: SignedIn, runtime: Runtime, alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 4))
    job = (await submitted(alice))["id"]
    booking = (await booked(alice, at(60), gpus=1, gpu_type="h100"))["id"]
    await root.post("/v1/projects", json={"name": "vision"})
    browser, pages = await browsing("root"), 0
    for page in (
        f"/jobs/{job}", f"/jobs/{job}/cancel", f"/bookings/{booking}", f"/bookings/{booking}/cancel", "/submit",
        "/calendar", "/account", "/admin/tokens", "/admin/users", "/admin/projects", "/admin/projects/vision",
        "/admin/maintenance", "/admin/policy/default", "/admin/users/bob/disable",
    ):  # fmt: skip
        forms = [form for form in _FORM.findall(await browser.get(page)) if "/sign-" not in form]
        pages += bool(forms)
        for form in forms:
            assert len(_KEY.findall(form)) == 1, (page, form)
    assert pages == 14


async def test_a_job_is_extended_once_and_by_the_next_page_again(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    job = (await submitted(alice, duration="PT1H"))["id"]
    browser = await browsing("alice")
    for length in ("PT3H", "PT5H"):
        form = await keyed(browser, f"/jobs/{job}")
        answers = await clicked_twice(browser, f"/jobs/{job}/extend", {**form, "by": "2h"})
        assert {answer.status_code for answer in answers} == {303}
        assert (await alice.get(f"/v1/jobs/{job}/spec")).json()["duration"] == length


async def test_a_form_that_was_changed_is_another_deed(browsing: SignedIn, alice: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    form = {**await keyed(browser, "/submit"), "gpus": "1", "nodes": "1", "duration": "1h"}
    for command in ("first", "second", "first"):
        answer = await browser.client.post("/submit", data={**form, "command": command})
        assert answer.status_code == 303, answer.text
    assert len((await alice.get("/v1/jobs")).json()["items"]) == 2


async def test_a_refused_form_is_judged_again(browsing: SignedIn, root: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    fields = {**await keyed(browser, "/submit"), "gpus": "4", "nodes": "1", "duration": "1h", "command": "true"}
    await put(root, "default", max_gpus=2)
    assert (await browser.client.post("/submit", data=fields)).status_code == 409
    await put(root, "default", max_gpus=4)
    assert (await browser.client.post("/submit", data=fields)).status_code == 303


async def test_a_token_is_made_once_and_where_its_secret_went_is_said(browsing: SignedIn, runtime: Runtime) -> None:
    for who, page, fields in (("alice", "/account", {}), ("root", "/admin/tokens", {"user": "alice"})):
        browser = await browsing(who)
        form = await keyed(browser, page)
        post = "/account/tokens" if page == "/account" else page
        answers = await clicked_twice(browser, post, {**form, **fields, "name": f"laptop of {who}"})
        shown = ["new-token" in answer.text for answer in answers]
        assert sorted(shown) == [False, True]
        again = words(answers[shown.index(False)].text)
        assert re.search(r"The form was sent twice, and (tok-\w+) was made once\..* revoke \1 and make another", again)
        found = await execute(runtime, "SELECT id FROM tokens WHERE name = :name", name=f"laptop of {who}")
        assert len(found.all()) == 1


async def test_a_verdict_is_of_now_however_often_it_is_asked_for(
    browsing: SignedIn, runtime: Runtime, root: httpx.AsyncClient
) -> None:
    await add_nodes(runtime, titan=("h100", 4))
    browser = await browsing("root")
    job = {**await keyed(browser, "/submit"), "gpus": "2", "nodes": "1", "duration": "1h", "command": "true"}
    window = {**await keyed(browser, "/admin/maintenance"), "node": "titan", "reason": "fans", "duration": "1h"}
    window |= {"start": at(600).strftime("%Y-%m-%dT%H:%M")}
    assert "costs" not in words((await browser.client.post("/submit/verdict", data=job)).text)
    preview = words((await browser.client.post("/admin/maintenance/preview", data=window)).text)
    await put(root, "default", cost_per_gpu_hour="1 EUR")
    assert "It costs about 2.00 EUR" in words((await browser.client.post("/submit/verdict", data=job)).text)
    assert words((await browser.client.post("/admin/maintenance/preview", data=window)).text) == preview
    assert (await execute(runtime, "SELECT count(*) FROM idempotency_keys")).scalar_one() == 0
