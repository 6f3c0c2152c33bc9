"""Signing in at an issuer's page: over real TLS to a real issuer, forged and repeated returns included."""

import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from pydantic import SecretStr, ValidationError

from api_service.app import create_app
from reservation_core.runtime.reading.sign_in import open_sign_in
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.settings.error import SettingsError
from reservation_core.runtime.settings.web import WebSettings
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.web.browsing import Browser, words
from tests.people.sign_in_world import ISSUER, SERVER, SignInWorld

WEB = WebSettings(public_url=SERVER, oidc_issuer=ISSUER, oidc_client_id=SERVER)


@pytest.fixture
async def browser(runtime: Runtime, world: SignInWorld) -> AsyncIterator[Browser]:
    """A browser at a server whose pages send people to the issuer; nobody is signed in."""
    async with opened(runtime, world) as browser:
        yield browser


@asynccontextmanager
async def opened(runtime: Runtime, world: SignInWorld, **changed: float) -> AsyncIterator[Browser]:
    """The same with some of what is set for signing in `changed`."""
    world.issuer.client_secret = "between-us"
    auth = world.settings.model_copy(update=changed)
    settings = ApiSettings(auth=auth, web=WEB, web_oidc_client_secret=SecretStr("between-us"))
    app = create_app(runtime, settings, open_sign_in(settings, runtime, world.network))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=SERVER, headers={"Accept": "text/html"}
        ) as client,
    ):
        yield Browser(client)


async def sent_away(browser: Browser, wanted: str = "/jobs") -> str:
    """The address of the issuer that the browser is sent to."""
    assert "/sign-in/start?next=/jobs" in await browser.get("/sign-in?next=/jobs")
    away = await browser.client.get("/sign-in/start", params={"next": wanted})
    assert away.status_code == 303
    return str(away.headers["location"])


async def back(browser: Browser, url: str, given: str, **changed: str) -> httpx.Response:
    state = dict(parse_qsl(urlsplit(url).query))["state"]
    return await browser.client.get("/sign-in/done", params={"code": given, "state": state} | changed)


async def test_whoever_signs_in_there_is_signed_in_here(browser: Browser, world: SignInWorld) -> None:
    url = await sent_away(browser)
    done = await back(browser, url, world.issuer.visited(url))
    assert (done.status_code, done.headers["location"]) == (303, "/jobs")
    assert "ada" in words(await browser.get("/jobs"))
    cookies = done.headers.get_list("set-cookie")
    assert any(
        "__Host-gpu_dev_session=" in cookie and "Secure" in cookie and "HttpOnly" in cookie for cookie in cookies
    )


async def test_an_account_that_is_not_let_in_reads_why_on_the_sign_in_page(
    browser: Browser, world: SignInWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = world.issuer.claims
    for given, said in (
        ({"email": "eve@elsewhere.example"}, "eve@elsewhere.example of https://issuer.example can't sign in here: no"),
        ({"email_verified": False}, "It has no e-mail address that its issuer has verified. Ask an administrator"),
    ):
        monkeypatch.setattr(world.issuer, "claims", lambda now, given=given, **more: good(now, **more, **given))
        url = await sent_away(browser)
        refused = await back(browser, url, world.issuer.visited(url))
        assert refused.status_code == 403
        assert said in words(refused.text)
        assert '<form method="post" action="/sign-in">' in refused.text
        assert "/sign-in/start?next=/jobs&amp;account=other" in refused.text
    # The issuer would choose the same account again by itself.
    other = await browser.client.get("/sign-in/start", params={"next": "/jobs", "account": "other"})
    assert "prompt=select_account" in other.headers["location"]
    assert "prompt" not in url


async def test_a_token_made_after_such_a_sign_in_lasts_as_long_as_it_and_signing_out_says_what_stays(
    browser: Browser, world: SignInWorld
) -> None:
    url = await sent_away(browser)
    await back(browser, url, world.issuer.visited(url))
    page = words(await browser.get("/account"))
    assert "It stops working when you sign out of this browser, and at" in page
    made = await browser.send("/account/tokens", name="laptop", key="k1")
    assert (made.status_code, "Your token. Copy it now" in made.text) == (200, True), words(made.text)
    done = await browser.send("/sign-out")
    assert done.headers["location"] == "/sign-in"
    assert "You are signed out. You may still be signed in at your organisation." in words(
        await browser.get("/sign-in")
    )


async def test_a_return_is_good_once_and_for_the_browser_that_began(browser: Browser, world: SignInWorld) -> None:
    url = await sent_away(browser)
    code = world.issuer.visited(url)
    kept = dict(browser.client.cookies)
    refused = await back(browser, url, code, state="another")
    assert (refused.status_code, "account=other" in refused.text) == (403, False)
    browser.client.cookies.clear()
    assert (await back(browser, url, code)).status_code == 403  # somebody else's browser, led here
    browser.client.cookies.update(kept)
    assert (await back(browser, url, code)).status_code == 303
    browser.client.cookies.update(kept)
    assert (await back(browser, url, code)).status_code == 401  # the code is used


async def test_a_code_of_another_sign_in_does_not_do(browser: Browser, world: SignInWorld) -> None:
    stolen = world.issuer.visited(await sent_away(browser))
    browser.client.cookies.clear()
    url = await sent_away(browser)  # another browser's: it has not what was hashed for that code
    assert (await back(browser, url, stolen)).status_code == 401


async def test_a_token_with_another_nonce_does_not_do(browser: Browser, world: SignInWorld) -> None:
    url = await sent_away(browser)
    code = world.issuer.visited(url)
    world.issuer.codes[code]["nonce"] = "of another sign-in"
    refused = await back(browser, url, code)
    assert refused.status_code == 401
    assert "another sign-in" in words(refused.text)


@pytest.mark.parametrize(
    ("parameters", "status"),
    [({"error": "access_denied"}, 403), ({"code": ""}, 401), ({"code": "x" * 5000}, 401), ({"code": "unknown"}, 401)],
    ids=["refused there", "no code", "long code", "unknown code"],
)
async def test_what_comes_back_instead_of_a_code(
    browser: Browser, world: SignInWorld, parameters: dict[str, str], status: int
) -> None:
    url = await sent_away(browser)
    refused = await back(browser, url, world.issuer.visited(url), **parameters)
    assert refused.status_code == status
    assert "again" in words(refused.text).lower()
    assert "account=other" not in refused.text
    assert (await browser.client.get("/jobs")).status_code == 303


@pytest.mark.parametrize("kept", ["[" * 10_000, '["\\ud800", "n", "v", "/"]', '[1, 2, 3, "/"]', "{}", "1"])
async def test_a_cookie_that_is_not_ours_is_no_sign_in(browser: Browser, kept: str) -> None:
    browser.client.cookies.set("__Host-gpu_dev_sign_in", urlsafe_b64encode(kept.encode()).decode())
    refused = await browser.client.get("/sign-in/done", params={"state": "a", "code": "b"})
    assert refused.status_code == 403
    assert "again" in words(refused.text)
    assert "account=other" not in refused.text


async def test_nobody_has_the_issuer_asked_without_end(runtime: Runtime, world: SignInWorld) -> None:
    async with opened(runtime, world, address_burst=3, address_per_s=0.01) as browser:
        statuses = [(await browser.client.get("/sign-in/start")).status_code for _ in range(4)]
    assert statuses == [303, 303, 303, 429]
    kept = urlsafe_b64encode(json.dumps(["a", "n", "v", "/"]).encode()).decode()  # anybody can write one
    async with opened(runtime, world, address_burst=3, address_per_s=0.01) as browser:
        browser.client.cookies.set("__Host-gpu_dev_sign_in", kept)
        returned = {"state": "a", "code": "b"}
        statuses = [(await browser.client.get("/sign-in/done", params=returned)).status_code for _ in range(4)]
    assert statuses == [401, 401, 401, 429]


async def test_nor_from_many_addresses(runtime: Runtime, world: SignInWorld) -> None:
    kept = urlsafe_b64encode(json.dumps(["a", "n", "v", "/"]).encode()).decode()
    async with opened(runtime, world, voucher_burst=3, voucher_per_s=0.01) as browser:
        browser.client.cookies.set("__Host-gpu_dev_sign_in", kept)
        returned = {"state": "a", "code": "b"}
        tried = [await browser.client.get("/sign-in/done", params=returned) for _ in range(4)]
        assert [response.status_code for response in tried] == [401, 401, 401, 429]
        assert "by oidc" in words(tried[-1].text)
        assert int(tried[-1].headers["retry-after"]) > 0
        # It is the same word that REST's sign-ins with an ID token are good by.
        proof = {"method": "oidc", "id_token": "e30.e30.e30"}
        assert (await browser.client.post("/v1/login", json=proof)).status_code == 429


async def test_tries_are_counted_by_what_became_of_them(browser: Browser, world: SignInWorld) -> None:
    url = await sent_away(browser)
    code = world.issuer.visited(url)
    await back(browser, url, code, state="another")
    await back(browser, url, code, error="access_denied")
    await back(browser, url, "unknown")
    assert (await back(browser, url, code)).status_code == 303
    world.network.ports.clear()
    assert (await browser.client.get("/sign-in/start")).status_code == 503
    text = (await browser.client.get("/metrics")).text
    counted = {line for line in text.splitlines() if line.startswith("gpu_dev_sign_ins_total")}
    assert counted == {
        'gpu_dev_sign_ins_total{method="oidc",outcome="malformed"} 1.0',
        'gpu_dev_sign_ins_total{method="oidc",outcome="refused"} 2.0',
        'gpu_dev_sign_ins_total{method="oidc",outcome="signed_in"} 1.0',
        'gpu_dev_sign_ins_total{method="oidc",outcome="unavailable"} 1.0',
    }


async def test_all_other_browsers_are_signed_out_however_they_were_signed_in(
    browser: Browser, world: SignInWorld
) -> None:
    url = await sent_away(browser)
    await back(browser, url, world.issuer.visited(url))
    first = dict(browser.client.cookies)
    browser.client.cookies.clear()
    url = await sent_away(browser)
    await back(browser, url, world.issuer.visited(url))
    assert (await browser.send("/account/sessions/end")).status_code == 303
    await browser.get("/jobs")
    browser.client.cookies.clear()
    browser.client.cookies.update(first)
    assert (await browser.client.get("/jobs")).status_code == 303


async def test_a_proxy_may_call_the_server_otherwise_than_browsers_do(browser: Browser, world: SignInWorld) -> None:
    url = await sent_away(browser)
    await back(browser, url, world.issuer.visited(url))
    proxied = {"Host": "api:8080", "Origin": SERVER}
    form = {"csrf_token": await browser.token("/jobs"), "zone": "Asia/Tokyo"}
    assert (await browser.client.post("/zone", data=form, headers=proxied)).status_code == 303
    for elsewhere in ("https://evil.test", f"{SERVER}.evil.test"):
        refused = await browser.client.post("/zone", data=form, headers=proxied | {"Origin": elsewhere})
        assert refused.status_code == 403
        assert "PUBLIC_URL" in refused.text


async def test_an_issuer_that_is_away_is_said(browser: Browser, world: SignInWorld) -> None:
    world.network.ports.clear()
    away = await browser.client.get("/sign-in/start")
    assert away.status_code == 503
    assert "issuer.example can't be reached (no connection). Try again." in words(away.text)
    assert "another account" not in away.text, "no account was refused"
    assert away.headers["retry-after"] == "5"


async def test_a_browser_that_would_not_stay_signed_in_is_told_where_it_would(browser: Browser) -> None:
    plain = await browser.client.get("http://gpus.lab/sign-in")
    assert (
        f"This address is not encrypted (http), so your browser would not stay signed in. Open {SERVER} instead."
        in words(plain.text)
    )
    proxied = await browser.client.get("http://gpus.lab/sign-in", headers={"X-Forwarded-Proto": "https"})
    for page in (await browser.get("/sign-in"), proxied.text):
        assert "without TLS" not in words(page)


async def test_nobody_is_led_elsewhere_afterwards(browser: Browser, world: SignInWorld) -> None:
    url = await sent_away(browser, "//evil.test")
    done = await back(browser, url, world.issuer.visited(url))
    assert done.headers["location"] == "/now"


def test_settings_that_do_not_hang_together_are_refused(world: SignInWorld, runtime: Runtime) -> None:
    with pytest.raises(ValidationError, match="PUBLIC_URL"):
        WebSettings(oidc_issuer=ISSUER, oidc_client_id="x")
    with pytest.raises(ValidationError, match="OIDC_CLIENT_ID"):
        WebSettings(oidc_issuer=ISSUER, public_url=SERVER)
    for changed in ({"oidc_client_id": "not-an-audience"}, {"oidc_issuer": "https://other.example"}):
        settings = ApiSettings(auth=world.settings, web=WEB.model_copy(update=changed))
        with pytest.raises(SettingsError, match="audiences"):
            open_sign_in(settings, runtime, world.network)
