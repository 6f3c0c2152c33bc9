"""Tokens that are revoked, expired, malformed or of a disabled user stop at once; names that nobody may have."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.callers import People


async def test_a_revoked_token_stops_at_once(alice: httpx.AsyncClient, app: FastAPI) -> None:
    made = (await alice.post("/v1/tokens", json={})).json()
    header = {"Authorization": f"Bearer {made['token']}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=header) as spare:
        assert (await spare.get("/v1/jobs")).status_code == 200
        assert (await alice.delete(f"/v1/tokens/{made['id']}")).status_code == 200
        assert (await spare.get("/v1/jobs")).status_code == 401


async def test_a_disabled_users_tokens_stop_at_once(bob: httpx.AsyncClient, root: httpx.AsyncClient) -> None:
    assert (await bob.get("/v1/users/me")).json()["name"] == "bob"
    assert (await root.delete("/v1/users/bob")).status_code == 200
    assert (await bob.get("/v1/users/me")).status_code == 401
    refused = await root.post("/v1/tokens", json={"user": "bob"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:gpu-dev:problem:user_disabled")


async def test_nobody_disables_themselves(root: httpx.AsyncClient) -> None:
    for name in ("root", "me"):
        assert (await root.delete(f"/v1/users/{name}")).status_code == 403


async def test_expiry_is_checked_although_the_token_is_remembered(
    app: FastAPI, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = (await alice.post("/v1/tokens", json={"expires_in": 3600})).json()
    header = {"Authorization": f"Bearer {made['token']}"}
    authenticator = app.state.services.authenticator
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=header) as spare:
        assert (await spare.get("/v1/users/me")).status_code == 200
        later = authenticator._clock.now() + timedelta(hours=1)

        class Later:
            def now(self) -> Any:
                return later

        authenticator._clock = Later()
        assert (await spare.get("/v1/users/me")).status_code == 401


async def test_last_use_is_written_in_batches(
    app: FastAPI, alice: httpx.AsyncClient, runtime: Runtime, people: People
) -> None:
    await alice.get("/v1/jobs")
    mine = people.principals["alice"]

    async def last_used() -> Any:
        async with runtime.uow() as uow:
            tokens = await uow.identities.tokens(mine.user_id, after=None, limit=10)
        return {token.id: token.last_used_at for token in tokens}[mine.token_id]

    assert await last_used() is None
    await app.state.services.authenticator.write_last_used()
    assert await last_used() is not None


async def test_several_or_malformed_credentials_are_refused(app: FastAPI, people: People) -> None:
    secret = people.secrets["alice"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
        for headers in (
            [("Authorization", f"Bearer {secret}"), ("Authorization", f"Bearer {secret}")],
            [("Authorization", f"Basic {secret}")],
            [("Authorization", "Bearer")],
            [("Authorization", "Bearer " + "x" * 10_000)],
            [("Authorization", "Bearer \xff\xfe")],
        ):
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
            assert (await client.get("/v1/jobs", headers=encoded)).status_code == 401
        assert (await client.get("/v1/nothing")).status_code == 401
        assert (await client.get("/v1/jobs", headers={"Authorization": f"bearer {secret}"})).status_code == 200


@pytest.mark.parametrize("name", ["me", "planner", "system"])
async def test_nobody_is_called_what_the_record_calls_itself(root: httpx.AsyncClient, name: str) -> None:
    assert (await root.post("/v1/users", json={"name": name})).status_code == 409
