"""One's own tokens, browsers and notices, on pages."""

import httpx

from reservation_core.ports.people.notices import NoticeRoutes
from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import execute
from tests.integration.api_service.callers import People
from tests.integration.api_service.web.browsing import words
from tests.integration.api_service.web.conftest import SignedIn


async def test_a_token_is_shown_once_and_works_until_it_is_revoked(browsing: SignedIn, people: People) -> None:
    alice = await browsing("alice")
    made = await alice.send("/account/tokens", name="laptop", expires_in="1d")
    secret = next(word for word in words(made.text).split() if word.startswith("gpudev_"))
    page = await alice.get("/account")
    assert secret not in page
    assert "laptop" in page
    people.secrets["laptop"] = secret
    other = await browsing("laptop")
    token = next(word for word in words(made.text).split("laptop")[0].split() if word.startswith("tok-"))
    assert "alice" in await other.get("/account")
    listed = words(page)
    token = listed[: listed.index("laptop")].split()[-1]
    await alice.send(f"/account/tokens/{token}/revoke")
    assert (await other.client.get("/account")).status_code == 303  # a session that was begun with it, too


async def test_how_long_a_token_lasts_is_said_before_it_is_made(
    browsing: SignedIn, alice: httpx.AsyncClient, people: People
) -> None:
    lasting = words(await (await browsing("alice")).get("/account"))
    assert "It stops working when the token that you signed in with ends or is revoked. The table" in lasting
    made = (await alice.post("/v1/tokens", json={"expires_in": "PT2H"})).json()
    people.secrets["short"] = made["token"]
    short = await browsing("short")
    assert "ends or is revoked, and at" in words(await short.get("/account"))
    done = await short.send("/account/tokens", name="of-short", key="k2")
    assert done.status_code == 200, words(done.text)
    refused = await short.send("/account/tokens", expires_in="3h", key="k3")
    assert "Choose a shorter time, or sign in with a token that lasts longer." in words(refused.text)


async def test_how_long_a_token_lasts_is_known_among_a_thousand(
    browsing: SignedIn, root: httpx.AsyncClient, people: People, runtime: Runtime
) -> None:
    others = (
        "INSERT INTO tokens (id, user_id, digest, created_at) SELECT 'tok-00000000' || n, u.id,"
        " sha256(convert_to(n::text, 'UTF8')), ledger_now() FROM users u, generate_series(1, 1000) n"
        " WHERE u.name = 'root'"
    )
    await execute(runtime, others)
    people.secrets["short"] = (await root.post("/v1/tokens", json={"expires_in": "PT2H"})).json()["token"]
    short = await browsing("short")
    for path in ("/account", "/admin/tokens"):
        assert "ends or is revoked, and at" in words(await short.get(path))
        done = await short.send(f"{path.removesuffix('/tokens')}/tokens", name="of-short", user="root", key=path)
        assert done.status_code == 200, words(done.text)


async def test_all_other_browsers_are_signed_out_at_once(browsing: SignedIn) -> None:
    here, there, elsewhere = await browsing("alice"), await browsing("alice"), await browsing("bob")
    told = await here.send("/account/sessions/end")
    assert told.headers["location"] == "/account"
    assert "2 other browsers are signed out." in words(await here.get("/account"))  # one is everybody's `session`
    assert (await there.client.get("/account")).status_code == 303
    await elsewhere.get("/account")


async def test_others_tokens_are_neither_listed_nor_revoked(browsing: SignedIn, people: People) -> None:
    bob = await browsing("bob")
    theirs = people.principals["alice"].token_id
    assert theirs not in await bob.get("/account")
    assert (await bob.send(f"/account/tokens/{theirs}/revoke")).status_code == 404
    root = await browsing("root")
    assert theirs not in await root.get("/account")  # administrators have a page for that


async def test_what_one_is_told_is_chosen_and_where_is_added(browsing: SignedIn) -> None:
    alice = await browsing("alice")
    await alice.send("/account/notices", started="email")
    page = await alice.get("/account")
    assert "Your choice is saved. Nothing is sent yet: you have no notification address." in words(page)
    assert 'name="started" value="email" checked' in page
    assert page.count(" checked") == 1
    assert "no show Nothing uses a booking; it is released soon." in words(page)
    wrong = await alice.send("/account/targets", channel="email", address="nobody", key="k")
    assert wrong.status_code == 422
    assert "such as ada@example.org" in words(wrong.text)
    made = await alice.send("/account/targets", channel="webhook", address="https://hooks.example.org/x", key="k2")
    assert "is signed with this" in words(made.text)
    assert "hooks.example.org" in words(await alice.get("/account"))


async def test_an_administrator_finds_their_address_behind_those_of_many(
    browsing: SignedIn, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    others = (
        "INSERT INTO notice_targets (id, user_id, channel, address, created_at) SELECT 'ntg-0' || n, u.id, 'slack',"
        " 'https://hooks.example.org/x', ledger_now() FROM users u, generate_series(1, 201) n WHERE u.name = 'alice'"
    )
    await execute(runtime, others)
    await root.post("/v1/notifications/targets", json={"channel": "slack", "address": "https://chat.example.org/x"})
    browser = await browsing("root")
    await browser.send("/account/notices", started="slack")
    page = words(await browser.get("/account"))
    assert "Your choice is saved." in page
    assert "you have no notification address" not in page
    assert "chat.example.org" in page
    assert "hooks.example.org" not in page


async def test_scopes_are_listed_in_the_words_of_the_form(browsing: SignedIn) -> None:
    alice = await browsing("alice")
    for number, scopes in enumerate(("read", "read book")):
        await alice.send("/account/tokens", name=f"n{number}", scopes=scopes, key=f"s{number}")
    page = words(await alice.get("/account")).partition("Good for Budget")[2]
    for said in ("reading only", "reading, and bookings"):
        assert said in page


async def test_mail_is_not_suggested_where_no_mail_server_is_set(browsing: SignedIn, runtime: Runtime) -> None:
    alice = await browsing("alice")
    for mail in (False, True):
        async with runtime.uow() as uow:
            await uow.notices.set_routes(NoticeRoutes(mail, (), public=True))
        page = await alice.get("/account")
        assert ("Add an e-mail address" in page) is mail
        assert ('<option value="email" disabled>' in page) is not mail
        assert ("Nothing is sent by email" in page) is not mail


async def test_a_tokens_budget_is_typed_and_shown(browsing: SignedIn, people: People) -> None:
    alice = await browsing("alice")
    made = await alice.send("/account/tokens", name="laptop", gpu_hours="2.5", until="2031-01-31T09:00")
    people.secrets["laptop"] = next(word for word in words(made.text).split() if word.startswith("gpudev_"))
    laptop = await browsing("laptop")
    refused = await laptop.send("/submit", gpus="3", nodes="1", duration="1h", command="true", key="k")
    assert refused.status_code == 409
    assert "has 2.5 of 2.5 left until Fri 31 Jan 2031 09:00 UTC" in words(refused.text)
    await laptop.send("/submit", gpus="2", nodes="1", duration="1h", command="true", key="k2")
    page = words(await alice.get("/account"))
    assert "2 of 2.5 GPU-hours until" in page
    for wrong in ({"gpu_hours": "many"}, {"until": "2031-01-31T09:00"}):
        assert (await alice.send("/account/tokens", **wrong)).status_code == 422
