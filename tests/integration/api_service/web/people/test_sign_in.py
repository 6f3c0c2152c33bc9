"""Sessions of browsers: begun with a token, ended on the server, and never longer than that token."""

from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI

from reservation_core.domain.statuses import Role
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.people import tokens
from reservation_core.usecases.people.web_sessions import open_session
from tests.integration.api_service.callers import People, submitted
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn


async def test_a_page_leads_to_the_sign_in_and_back(browsing: SignedIn, people: People) -> None:
    browser = await browsing("anonymous")
    asked = await browser.client.get("/jobs?status=queued")
    assert (asked.status_code, asked.headers["location"]) == (303, "/sign-in?next=%2Fjobs%3Fstatus%3Dqueued")
    page = await browser.get(asked.headers["location"])
    assert 'value="/jobs?status=queued"' in page
    done = await browser.client.post("/sign-in", data={"token": people.secrets["alice"], "next": "/jobs?status=queued"})
    assert (done.status_code, done.headers["location"]) == (303, "/jobs?status=queued")
    assert "alice" in await browser.get("/jobs")


async def test_the_cookie_is_no_token_that_anybody_made_and_no_script_reads_it(
    browsing: SignedIn, people: People
) -> None:
    browser = await browsing("anonymous")
    done = await browser.client.post("/sign-in", data={"token": people.secrets["alice"]})
    cookie = done.headers["set-cookie"]
    assert str(people.secrets["alice"]) not in cookie
    assert all(part in cookie for part in ("HttpOnly", "SameSite=lax", "Path=/"))
    assert "Secure" not in cookie  # this browser came without TLS, and would not send it back


async def test_behind_tls_the_cookie_goes_by_tls_alone(browsing: SignedIn, people: People) -> None:
    browser = await browsing("anonymous")
    done = await browser.client.post(
        "/sign-in", data={"token": people.secrets["alice"]}, headers={"X-Forwarded-Proto": "https"}
    )
    assert done.headers["set-cookie"].startswith("__Host-gpu_dev_session=")
    assert "Secure" in done.headers["set-cookie"]


@pytest.mark.parametrize("who", ["unknown", "expired", "revoked"])
async def test_a_token_that_is_not_valid_begins_nothing(browsing: SignedIn, people: People, who: str) -> None:
    browser = await browsing("anonymous")
    done = await browser.client.post("/sign-in", data={"token": people.secrets[who]})
    assert done.status_code == 401
    assert "not valid" in words(done.text)
    assert "set-cookie" not in done.headers
    assert str(people.secrets[who]) not in done.text


async def test_what_the_cookie_holds_is_no_bearer_token_and_a_token_is_no_cookie(
    app: FastAPI, browsing: SignedIn, people: People
) -> None:
    browser = await browsing("alice")
    await browser.get("/jobs")  # remembered from now on
    [cookie] = browser.client.cookies.jar
    headers = {"Authorization": f"Bearer {cookie.value}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers) as bearer:
        assert (await bearer.get("/v1/users/me")).status_code == 401
        assert (await bearer.post("/v1/jobs", json={})).status_code == 401
    await browser.get("/jobs")
    stranger = await browsing("anonymous")
    stranger.client.cookies.set(cookie.name, str(people.secrets["alice"]))
    assert (await stranger.client.get("/jobs")).status_code == 303


async def test_a_session_is_good_for_what_its_token_is_good_for(
    browsing: SignedIn, alice: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    job = await submitted(alice)
    reads = (await alice.post("/v1/tokens", json={"scopes": ["read"]})).json()["token"]
    browser = await browsing("anonymous")
    assert (await browser.client.post("/sign-in", data={"token": reads})).status_code == 303
    assert job["id"] in await browser.get("/jobs")
    refused = await browser.send(f"/jobs/{job['id']}/cancel")
    assert refused.status_code == 403
    assert "does not have the scope submit" in words(refused.text)
    assert (await alice.get(f"/v1/jobs/{job['id']}")).json()["status"] == "queued"
    submits = (await alice.post("/v1/tokens", json={"scopes": ["submit"]})).json()["token"]
    stranger = await browsing("anonymous")
    begun = await stranger.client.post("/sign-in", data={"token": submits})
    assert begun.status_code == 401
    assert "does not have the scope read" in words(begun.text)
    # Without the scope admin the pages of administrators are not for an administrator's token either.
    plain = (await root.post("/v1/tokens", json={"scopes": ["read", "submit"]})).json()["token"]
    assert (await stranger.client.post("/sign-in", data={"token": plain})).status_code == 303
    assert (await stranger.client.get("/admin/users")).status_code == 403


async def test_a_services_token_begins_nothing(browsing: SignedIn, runtime: Runtime) -> None:
    now = runtime.clock.now()
    secret = runtime.ids.new_secret()
    async with runtime.uow() as uow:
        user = await uow.identities.create_user("webhook", Role.SERVICE, now)
        await uow.identities.create_token(
            runtime.ids.new_id("tok"), user.id, None, runtime.ids.digest(secret), None, now
        )
    browser = await browsing("anonymous")
    done = await browser.client.post("/sign-in", data={"token": secret})
    assert done.status_code == 401
    assert "service's token" in words(done.text)
    counted = (await browser.client.get("/metrics")).text
    assert 'gpu_dev_sign_ins_total{method="token",outcome="not_let_in"} 1.0' in counted
    # Put into the cookie by hand it is none, either: past the gate REST would take it for a person's.
    browser.client.cookies.set("gpu_dev_session", secret)
    assert (await browser.client.get("/account")).status_code == 303


async def test_tries_are_counted_by_what_became_of_them(browsing: SignedIn, people: People) -> None:
    browser = await browsing("alice")
    for shown in (people.secrets["revoked"], "x" * 600, None):
        await browser.client.post("/sign-in", data={} if shown is None else {"token": shown})
    text = (await browser.client.get("/metrics")).text
    counted = {line for line in text.splitlines() if line.startswith("gpu_dev_sign_ins_total")}
    assert counted == {
        'gpu_dev_sign_ins_total{method="token",outcome="signed_in"} 1.0',
        'gpu_dev_sign_ins_total{method="token",outcome="refused"} 2.0',
        'gpu_dev_sign_ins_total{method="token",outcome="malformed"} 1.0',
    }


async def test_signing_out_ends_the_session_on_the_server(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    kept = dict(browser.client.cookies)
    assert (await browser.send("/sign-out")).headers["location"] == "/sign-in"
    browser.client.cookies.update(kept)  # a copy that somebody took is worth nothing
    assert (await browser.client.get("/jobs")).status_code == 303


async def test_signing_in_again_ends_the_session_that_the_browser_had(browsing: SignedIn, people: People) -> None:
    browser = await browsing("alice")
    former = dict(browser.client.cookies)
    assert (await browser.client.post("/sign-in", data={"token": people.secrets["bob"]})).status_code == 303
    assert "bob" in words(await browser.get("/jobs"))
    browser.client.cookies.clear()
    browser.client.cookies.update(former)
    assert (await browser.client.get("/jobs")).status_code == 303


async def test_an_id_with_a_slash_is_no_other_address(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    for path in ("/submit?again=a%2Fspec", "/submit?again=..%2F..%2Fusers%2Fme"):
        assert "Nothing has this id" in words(await browser.get(path, status=404))


async def test_a_problem_page_says_when_to_try_again_and_what_is_allowed(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    refused = await browser.client.request("DELETE", "/submit")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, POST")
    compressed = await browser.client.get("/sign-in", headers={"Accept-Encoding": "gzip;q=0, identity"})
    assert "content-encoding" not in compressed.headers


async def test_a_problem_page_keeps_the_navigation_of_a_visitor_who_is_signed_in(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    for method, path, status in (("GET", "/no-such-page", 404), ("DELETE", "/submit", 405)):
        refused = await browser.client.request(method, path, headers={"Accept": "text/html"})
        assert refused.status_code == status
        assert all(shown in refused.text for shown in ('href="/queue"', 'action="/sign-out"', ">alice</a>")), path
        assert 'href="/admin"' not in refused.text
    browser.client.cookies.clear()
    stranger = await browser.client.get("/no-such-page", headers={"Accept": "text/html"})
    assert stranger.status_code == 404
    assert 'href="/queue"' not in stranger.text


async def test_a_session_ends_with_the_token_that_it_was_begun_with(
    browsing: SignedIn, runtime: Runtime, people: People
) -> None:
    principal = people.principals["alice"]
    now = runtime.clock.now()
    async with runtime.uow() as uow:
        session = await open_session(uow, principal, lasts=timedelta(hours=1), ids=runtime.ids, now=now)
    async with runtime.uow() as uow:
        assert await uow.identities.principal(runtime.ids.digest(session.secret), now) is not None
        await tokens.revoke(uow, principal, principal.token_id, now)
        late = await open_session(uow, principal, lasts=timedelta(hours=1), ids=runtime.ids, now=now)
    async with runtime.uow() as uow:
        for other_session in (session, late):
            assert await uow.identities.principal(runtime.ids.digest(other_session.secret), now) is None


async def test_a_disabled_users_session_is_over(browsing: SignedIn, root: httpx.AsyncClient) -> None:
    browser = await browsing("alice")
    await browser.get("/jobs")
    assert (await root.delete("/v1/users/alice")).status_code == 200
    assert (await browser.client.get("/jobs")).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://elsewhere"},
        {"Origin": "null"},
    ],
    ids=str,
)
async def test_no_other_site_can_sign_a_browser_in(browsing: SignedIn, people: People, headers: dict[str, str]) -> None:
    browser = await browsing("anonymous")
    done = await browser.client.post("/sign-in", data={"token": people.secrets["bob"]}, headers=headers)
    assert done.status_code == 403
    assert "set-cookie" not in done.headers


@pytest.mark.parametrize(
    "wanted",
    ["//evil.test", "/\\evil.test", "https://evil.test/", "javascript:alert(1)", "/\t/evil.test", "/sign-out", "now"],
)
async def test_nobody_is_led_elsewhere(browsing: SignedIn, people: People, wanted: str) -> None:
    browser = await browsing("anonymous")
    done = await browser.client.post("/sign-in", data={"token": people.secrets["alice"], "next": wanted})
    assert (done.status_code, done.headers["location"]) == (303, "/now")


async def test_a_form_without_the_sessions_token_changes_nothing(browsing: SignedIn) -> None:
    alice, bob = await browsing("alice"), await browsing("bob")
    for forged in ({}, {"csrf_token": "0" * 96}, {"csrf_token": await bob.token("/jobs")}):
        done = await alice.client.post("/zone", data={**forged, "zone": "Asia/Kolkata"})
        assert done.status_code == 403
    await alice.get("/jobs")


async def test_a_form_larger_than_any_is_refused(browsing: SignedIn) -> None:
    alice = await browsing("alice")
    assert (await alice.send("/submit", command="x" * 70_000)).status_code == 413
    many = await alice.client.post("/submit", data={f"f{number}": "1" for number in range(600)})
    assert many.status_code == 400


async def test_the_zone_is_chosen_and_shown(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    assert (await browser.send("/zone", zone="Asia/Kolkata", next="/jobs")).headers["location"] == "/jobs"
    page = await browser.get("/jobs")
    assert 'value="Asia/Kolkata"' in page
    assert "Times are shown for Asia/Kolkata." in page
    assert (await browser.send("/zone", zone="Mars/Olympus")).status_code == 422
    await browser.send("/zone", zone="", next="/jobs")
    assert "Times are shown in UTC: without JavaScript, your browser's" in words(await browser.get("/jobs"))
    browser.client.cookies.set("gpu_dev_browser_zone", "Asia/Kolkata")
    await browser.send("/zone", zone="", next="/jobs")
    assert "Times are shown for your browser's time zone." in words(await browser.get("/jobs"))


async def test_every_page_forbids_what_it_does_not_need(browsing: SignedIn, app: FastAPI) -> None:
    browser = await browsing("alice")
    for path in ("/sign-in", "/jobs", "/submit", "/nothing-here"):
        response = await browser.client.get(path)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["cache-control"] == "no-store"


async def test_what_is_not_there_is_a_page_for_people_and_a_problem_for_programs(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    page = await browser.client.get("/nothing-here")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    for path, accept in (("/nothing-here", "*/*"), ("/v1/nothing", "text/html")):
        answer = await browser.client.get(path, headers={"Accept": accept})
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_page_that_is_older_than_the_session_gets_a_token_for_its_forms(browsing: SignedIn) -> None:
    browser = await browsing("alice")
    said = (await browser.client.get("/session")).json()
    assert said["user"] == "alice"
    answer = await browser.client.post("/zone", data={"csrf_token": said["csrf"], "zone": "Europe/Berlin"})
    assert answer.status_code == 303


async def test_the_sign_in_is_a_part_too(browsing: SignedIn) -> None:
    browser = await browsing("anonymous")
    part = (await browser.client.get("/sign-in", headers={"HX-Request": "true"})).text
    assert "<html" not in part
    refused = await browser.client.post("/sign-in", data={"token": "x"}, headers={"HX-Request": "true"})
    assert refused.status_code == 401
    assert "not valid" in words(refused.text)
    assert "<html" not in refused.text


async def test_signing_out_works_from_a_page_that_is_older_than_the_session(browsing: SignedIn, people: People) -> None:
    browser = await browsing("alice")
    old = {"csrf_token": await browser.token("/jobs")}
    # Another tab signs in meanwhile.
    assert (await browser.client.post("/sign-in", data={"token": people.secrets["bob"]})).status_code == 303
    refused = await browser.client.post("/zone", data={**old, "zone": "Europe/Berlin"})
    assert (refused.status_code, "before you signed in" in words(refused.text)) == (403, True)
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert (await browser.client.post("/sign-out", data=old, headers=elsewhere)).status_code == 403
    assert (await browser.client.get("/jobs")).status_code == 200
    done = await browser.client.post("/sign-out", data=old)
    assert (done.status_code, done.headers["location"]) == (303, "/sign-in")
    assert (await browser.client.get("/jobs")).headers["location"].startswith("/sign-in")
