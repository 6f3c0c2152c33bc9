"""What a token is good for, and what becomes of tokens that were made with one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy.exc import IntegrityError

from reservation_core.domain.errors import UnknownCallerError
from reservation_core.domain.people.token_scopes import EVERYTHING, LONGEST_LINE
from reservation_core.domain.statuses import TokenScope
from reservation_core.runtime.settings.auth import AuthSettings
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.people.tokens import renew
from reservation_core.usecases.people.web_sessions import open_session
from tests.integration.api_service.bookings.calendars import asked, execute
from tests.integration.api_service.callers import JOB, People
from tests.integration.api_service.test_access import CALLS, WEB_SOCKETS

PERSONAL = "read submit book sessions"
NEEDS: dict[tuple[str, str], str] = {
    ("POST", "/v1/jobs"): "submit",
    ("POST", "/v1/jobs/{job_id}/cancel"): "submit",
    ("POST", "/v1/jobs/{job_id}/extend"): "submit",
    ("POST", "/v1/jobs/{job_id}/keep"): "submit",
    ("PUT", "/v1/jobs/{job_id}/shares/{user}"): "sessions",
    ("GET", "/v1/jobs/{job_id}/terminals"): "sessions",
    ("POST", "/v1/jobs/{job_id}/app-tickets"): "sessions",
    ("DELETE", "/v1/jobs/{job_id}/shares/{user}"): "sessions",
    ("POST", "/v1/ssh-certificates"): "sessions",
    ("POST", "/v1/keys"): PERSONAL,
    ("DELETE", "/v1/keys/{key_id}"): PERSONAL,
    ("PUT", "/v1/uploads"): "submit",
    ("PUT", "/v1/uploads/folders"): "submit",
    ("PUT", "/v1/jobs/{job_id}/results"): "submit",
    ("POST", "/v1/disks"): "submit",
    ("PATCH", "/v1/disks/{disk}"): "submit",
    ("DELETE", "/v1/disks/{disk}"): "submit",
    ("POST", "/v1/disks/{disk}/restore"): "submit",
    ("POST", "/v1/disks/{disk}/snapshots"): "submit",
    ("DELETE", "/v1/disks/{disk}/snapshots/{snapshot}"): "submit",
    ("PUT", "/v1/secrets/{secret}"): PERSONAL,
    ("DELETE", "/v1/secrets/{secret}"): PERSONAL,
    ("POST", "/v1/bookings"): "book",
    ("PATCH", "/v1/bookings/{booking_id}"): "book",
    ("DELETE", "/v1/bookings/{booking_id}"): "book",
    ("POST", "/v1/bookings/{booking_id}/accept"): "book",
    ("POST", "/v1/bookings/{booking_id}/decline"): "book",
    ("POST", "/v1/bookings/feed"): PERSONAL,
    ("DELETE", "/v1/bookings/feed"): PERSONAL,
    ("POST", "/v1/tokens"): "",
    ("DELETE", "/v1/tokens"): PERSONAL,
    ("POST", "/v1/tokens/renew"): PERSONAL,
    ("DELETE", "/v1/tokens/{token_id}"): PERSONAL,
    ("PUT", "/v1/notifications/preferences"): PERSONAL,
    ("POST", "/v1/notifications/targets"): PERSONAL,
    ("DELETE", "/v1/notifications/targets/{target_id}"): PERSONAL,
    ("POST", "/v1/notifications/targets/{target_id}/test"): PERSONAL,
    ("POST", "/v1/notifications/targets/{target_id}/verify"): PERSONAL,
    ("POST", "/v1/policy/explain"): "read",
    ("POST", "/v1/simulations"): "read",
    ("POST", "/v1/schedulability"): "",
    ("POST", "/v1/schedulability/admissions"): "",
    ("POST", "/gpu-schedulability/"): "",
}
"""A GET that is missing here takes `read`, and anything else `admin`."""


def needs(method: str, path: str) -> set[str]:
    if path in WEB_SOCKETS:
        return {"sessions"}
    return set(NEEDS.get((method, path), "read" if method == "GET" else "admin").split())


@asynccontextmanager
async def client(app: FastAPI, secret: str) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers) as made:
        yield made


async def made(maker: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await maker.post("/v1/tokens", json=asked)
    assert answer.status_code == 201, answer.text
    token: dict[str, Any] = answer.json()
    return token


async def works(app: FastAPI, secret: str) -> bool:
    async with client(app, secret) as caller:
        return (await caller.get("/v1/users/me")).status_code == 200


@pytest.mark.parametrize("scopes", [["read"], ["submit"], ["book"], ["sessions"], ["admin"], PERSONAL.split()])
@pytest.mark.parametrize("who", ["alice", "root"])
async def test_a_token_is_good_for_its_scopes_alone(
    app: FastAPI, calling: Callable[[str], httpx.AsyncClient], who: str, scopes: list[str]
) -> None:
    """Every operation there is, on things that are not there: what passes the scopes meets another answer."""
    secret = (await made(calling(who), scopes=scopes))["token"]
    things = {
        "job_id": "job-zzzzzzzz",
        "booking_id": "bkg-zzzzzzzz",
        "token_id": "tok-zzzzzzzz",
        "node": "nowhere",
        "index": "0",
    }
    things |= {"project": "nothing", "scope": "project:nothing", "user": "nobody", "target_id": "ntg-zzzzzzzz"}
    things |= {
        "key_id": "key-zzzzzzzz",
        "secret": "nothing",
        "disk": "nothing",
        "snapshot": "nothing",
        "window_id": "mnt-zzzzzzzz",
        "name": "nobody",
        "queue": "gpu_jobs",
        "pod": "job-nobody-1-0",
        "port": "8888",
    }
    async with client(app, secret) as caller:
        for (method, path), call in CALLS.items():
            answer = await caller.request(method, path.format(**things) + call.query, json=call.body)
            lacks = needs(method, path) - set(scopes)
            said = answer.status_code == 403 and "does not have the scope" in answer.json()["detail"]
            assert said is bool(lacks), (method, path, answer.text)
            if lacks:
                assert all(word in answer.json()["detail"] for word in lacks)


async def test_a_booking_that_starts_a_job_takes_both(app: FastAPI, alice: httpx.AsyncClient) -> None:
    asked_for = asked(duration="PT1H") | {"workload": JOB["workload"]}
    for scopes, allowed in ((["book"], False), (["book", "submit"], True)):
        async with client(app, (await made(alice, scopes=scopes))["token"]) as caller:
            answer = await caller.post("/v1/bookings", json=asked_for)
            assert (answer.status_code != 403) is allowed, answer.text
            if not allowed:
                assert "does not have the scope submit" in answer.json()["detail"]


async def test_every_token_may_revoke_itself(app: FastAPI, alice: httpx.AsyncClient) -> None:
    token = await made(alice, scopes=["read"])
    async with client(app, token["token"]) as caller:
        assert (await caller.delete("/v1/tokens/tok-zzzzzzzz")).status_code == 403
        assert (await caller.delete(f"/v1/tokens/{token['id']}")).status_code == 200
        assert (await caller.get("/v1/users/me")).status_code == 401


async def test_an_administrators_token_without_admin_is_a_users(app: FastAPI, root: httpx.AsyncClient) -> None:
    async with client(app, (await made(root, scopes=PERSONAL.split()))["token"]) as caller:
        assert (await caller.get("/v1/events")).status_code == 403
        assert (await caller.post("/v1/tokens", json={"user": "alice"})).status_code == 403
        job = (await root.post("/v1/jobs", json=JOB)).json()["id"]
        assert (await caller.get(f"/v1/jobs/{job}")).status_code == 200


async def test_a_token_never_gets_farther_than_its_maker(app: FastAPI, alice: httpx.AsyncClient) -> None:
    short = await made(alice, expires_in=60, scopes=["read", "submit"])
    assert (short["scopes"], short["expires_at"] is None) == (["read", "submit"], False)
    async with client(app, short["token"]) as maker:
        for more in ({}, {"expires_in": 61}, {"expires_in": 10, "scopes": ["read", "book"]}):
            refused = await maker.post("/v1/tokens", json=more)
            assert (refused.status_code, refused.json()["type"]) == (403, "urn:gpu-dev:problem:forbidden"), more
        child = await made(maker, expires_in=10)
    assert child["scopes"] == ["read", "submit"]
    assert child["made_with"] == short["id"]


async def test_an_administrators_short_token_makes_none_for_others_that_lasts(
    app: FastAPI, root: httpx.AsyncClient
) -> None:
    async with client(app, (await made(root, expires_in=60))["token"]) as maker:
        assert (await maker.post("/v1/tokens", json={"user": "alice"})).status_code == 403
        assert (await maker.post("/v1/tokens", json={"user": "alice", "expires_in": 30})).status_code == 201


async def test_revoking_takes_all_that_were_made_with_it(
    app: FastAPI, alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime
) -> None:
    first = await made(root)
    async with client(app, first["token"]) as maker:
        second, bobs = await made(maker), await made(maker, user="bob")
    async with client(app, second["token"]) as maker:
        third = await made(maker)
    other = await made(alice)
    now = runtime.clock.now()
    async with runtime.uow() as uow:
        shown = await uow.identities.principal(runtime.ids.digest(third["token"]), now)
        assert shown is not None
        session = await open_session(uow, shown, lasts=timedelta(hours=1), ids=runtime.ids, now=now)
    line = [token["token"] for token in (first, second, third, bobs)]
    assert [await works(app, secret) for secret in line] == [True] * 4  # and are remembered now
    assert (await root.delete(f"/v1/tokens/{first['id']}")).status_code == 200
    assert [await works(app, secret) for secret in line] == [False] * 4
    async with runtime.uow() as uow:
        assert await uow.identities.principal(runtime.ids.digest(session.secret), now) is None
    assert await works(app, other["token"])


async def test_a_token_that_is_made_while_its_maker_is_revoked_is_revoked(
    alice: httpx.AsyncClient, runtime: Runtime, people: People
) -> None:
    token = await made(alice)

    async def child(number: int) -> str:
        async with runtime.uow() as uow:
            made = await uow.identities.create_token(
                f"tok-child{number}",
                people.principals["alice"].user_id,
                None,
                runtime.ids.digest(str(number)),
                None,
                runtime.clock.now(),
                made_with=token["id"],
            )
            return made.id

    await asyncio.gather(*map(child, range(4)), alice.delete(f"/v1/tokens/{token['id']}"), *map(child, range(4, 8)))
    async with runtime.uow() as uow:
        for number in range(8):
            assert await uow.identities.principal(runtime.ids.digest(str(number)), runtime.clock.now()) is None


async def test_revoking_all_leaves_the_one_that_asks_and_those_it_was_made_with(
    app: FastAPI, alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient, people: People
) -> None:
    mine, spare = await made(alice), await made(alice)
    async with client(app, mine["token"]) as caller:
        child = await made(caller)
        assert (await caller.get("/v1/users/me")).status_code == 200
        answer = await caller.delete("/v1/tokens")
        # Spare, child, and what the world began with: "child" and "session".
        assert answer.json() == {"user": "alice", "revoked": 4}
        assert (await caller.get("/v1/users/me")).status_code == 200
    assert (await alice.get("/v1/users/me")).status_code == 200
    assert not await works(app, spare["token"])
    assert not await works(app, child["token"])
    assert (await bob.get("/v1/users/me")).status_code == 200
    assert (await alice.delete("/v1/tokens?user=bob")).status_code == 403
    assert (await root.delete("/v1/tokens?user=bob")).json() == {"user": "bob", "revoked": 1}
    assert (await bob.get("/v1/users/me")).status_code == 401
    assert (await root.delete("/v1/tokens?user=nobody")).status_code == 404
    events = (await root.get("/v1/events?kind=tokens_revoked")).json()["items"]
    assert [(event["actor"], event["subject"]) for event in events] == [("root", "user:bob"), ("alice", "user:alice")]


async def test_a_renewed_token_is_the_same_with_another_secret(
    app: FastAPI, alice: httpx.AsyncClient, runtime: Runtime, people: People
) -> None:
    token = await made(alice)
    new = "n" * 32
    async with client(app, token["token"]) as old:
        child = await made(old)
        answer = await old.post("/v1/tokens/renew", json={"token": new})
        assert (answer.status_code, answer.json()["id"]) == (200, token["id"])
        assert (await old.get("/v1/users/me")).status_code == 401
    assert new not in answer.text
    assert await works(app, new)
    assert await works(app, child["token"])
    # Another server that still believes the old secret changes nothing by it.
    old = runtime.ids.digest(token["token"])
    principal = replace(people.principals["alice"], token_id=token["id"])
    with pytest.raises(UnknownCallerError):
        async with runtime.uow() as uow:
            await renew(uow, principal, old, runtime.ids.digest("m" * 32), runtime.clock.now())
    assert await works(app, new)
    async with client(app, new) as again:  # whoever repeats it with what is the secret now
        assert (await again.post("/v1/tokens/renew", json={"token": new})).status_code == 200
    async with client(app, child["token"]) as other:
        for taken in (new, "0tiny", "with a space" + "x" * 32):
            refused = await other.post("/v1/tokens/renew", json={"token": taken})
            assert refused.status_code == (409 if taken == new else 422)
            assert taken not in refused.text


async def test_a_line_of_tokens_is_bounded(app: FastAPI, alice: httpx.AsyncClient) -> None:
    secret = (await made(alice))["token"]
    for _ in range(LONGEST_LINE - 1):
        async with client(app, secret) as maker:
            secret = (await made(maker))["token"]
    async with client(app, secret) as maker:
        refused = await maker.post("/v1/tokens", json={})
        assert refused.status_code == 403
        assert "earlier one" in refused.json()["detail"]


@pytest.mark.parametrize(
    "beyond", [{"expires_at": None}, {"scopes": EVERYTHING}, {"session": True, "scopes": EVERYTHING}]
)
async def test_the_database_refuses_what_reaches_farther(
    runtime: Runtime, people: People, beyond: dict[str, Any]
) -> None:
    now = runtime.clock.now()
    alice = people.principals["alice"].user_id
    read = frozenset({TokenScope.READ})
    until = now + timedelta(hours=1)
    async with runtime.uow() as uow:
        await uow.identities.create_token("tok-a", alice, None, b"a" * 32, until, now, scopes=read)
    origin: dict[str, Any] = (
        {"session": True, "session_from": "tok-a"} if beyond.get("session") else {"made_with": "tok-a"}
    )
    with pytest.raises(IntegrityError, match="farther"):
        async with runtime.uow() as uow:
            await uow.identities.create_token(
                "tok-b", alice, None, b"b" * 32, beyond.get("expires_at", until), now,
                scopes=beyond.get("scopes", read), **origin,
            )  # fmt: skip


@pytest.mark.parametrize("settings", [ApiSettings(auth=AuthSettings(longest_token_s=3600))])
async def test_no_token_lasts_longer_than_the_server_lets_it(alice: httpx.AsyncClient, settings: ApiSettings) -> None:
    for longer in ({}, {"expires_in": 3601}):
        refused = await alice.post("/v1/tokens", json=longer)
        assert refused.status_code == 403
        assert "work for at most 1 hour." in refused.json()["detail"]
    assert (await alice.post("/v1/tokens", json={"expires_in": 3600})).status_code == 201


async def test_the_owner_sees_what_a_token_is_good_for(alice: httpx.AsyncClient) -> None:
    token = await made(alice, scopes=["book", "read", "read"])
    [listed] = [
        other_token
        for other_token in (await alice.get("/v1/tokens")).json()["items"]
        if other_token["id"] == token["id"]
    ]
    assert listed["scopes"] == ["read", "book"]
    for wrong in ([], ["write"], ["READ"]):
        assert (await alice.post("/v1/tokens", json={"scopes": wrong})).status_code == 422


@pytest.mark.usefixtures("people")
async def test_the_database_knows_no_other_scopes(runtime: Runtime) -> None:
    for wrong in ("{}", "{write}"):
        with pytest.raises(IntegrityError, match="tokens_scopes_known"):
            await execute(runtime, f"UPDATE tokens SET scopes = '{wrong}'")
