"""Many tokens that were made with others: ending them is a bounded piece of work, and nobody is turned away by it."""

import asyncio

import httpx
import pytest

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.bookings.calendars import execute

MOST = 1000
_CHILDREN = """
INSERT INTO tokens (id, user_id, digest, created_at, expires_at, made_with, scopes)
SELECT 'tok-' || lower(:name) || n, t.user_id, sha256(convert_to(:name || n, 'UTF8')), ledger_now(),
       ledger_now() + interval '1 day', t.id, t.scopes
FROM tokens t, generate_series(1, :count) AS n WHERE t.id = :maker
"""

_WORKING = """
SELECT 1 FROM tokens t JOIN tokens maker USING (user_id)
WHERE maker.id = :maker AND coalesce(t.made_with, t.session_from) IS NOT NULL AND t.revoked_at IS NULL
  AND coalesce(t.expires_at, 'infinity') > ledger_now()
"""


async def made(client: httpx.AsyncClient) -> tuple[str, dict[str, str]]:
    """A token's id, and what is sent with it."""
    answer = await client.post("/v1/tokens", json={})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], {"authorization": f"Bearer {answer.json()['token']}"}


async def test_a_user_has_a_bounded_number_of_tokens_that_end_with_others(
    runtime: Runtime, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    maker, shown = await made(alice)
    children = await execute(runtime, _WORKING, maker=maker)
    await execute(runtime, _CHILDREN, maker=maker, name="a", count=MOST - 1 - len(children.all()))
    answers = await asyncio.gather(*(alice.post("/v1/tokens", json={}, headers=shown) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 422, 422, 422]
    refused = next(answer.json() for answer in answers if answer.status_code == 422)
    assert refused["type"].endswith("limit_exceeded")
    assert "Revoke" in refused["detail"]
    assert (await bob.post("/v1/tokens", json={})).status_code == 201
    assert (await alice.delete(f"/v1/tokens/{maker}")).status_code == 200
    assert (await alice.post("/v1/tokens", json={})).status_code == 201


async def test_who_is_revoked_while_all_are_is_never_turned_away(runtime: Runtime, alice: httpx.AsyncClient) -> None:
    for turn in range(4):
        maker, _ = await made(alice)
        await execute(runtime, _CHILDREN, maker=maker, name=f"r{turn}x", count=400)
        answers = await asyncio.gather(alice.delete("/v1/tokens"), alice.delete(f"/v1/tokens/{maker}"))
        assert [answer.status_code for answer in answers] == [200, 200]
        left = await execute(
            runtime, "SELECT 1 FROM tokens WHERE made_with = :maker AND revoked_at IS NULL", maker=maker
        )
        assert left.all() == []


@pytest.mark.parametrize("over", ["expires_at", "revoked_at"])
async def test_tokens_that_are_long_over_are_removed_when_another_is_made(
    runtime: Runtime, alice: httpx.AsyncClient, over: str
) -> None:
    maker, _ = await made(alice)
    await execute(runtime, _CHILDREN, maker=maker, name="o", count=3)
    long_over = f"created_at = ledger_now() - interval '9 days', {over} = ledger_now() - interval '8 days'"
    await execute(runtime, f"UPDATE tokens SET {long_over} WHERE made_with = :maker OR id = :maker", maker=maker)
    await execute(runtime, f"UPDATE tokens SET {over} = ledger_now() WHERE id = 'tok-o3'")

    async def left() -> list[str]:
        found = await execute(runtime, "SELECT id FROM tokens WHERE made_with = :maker OR id = :maker", maker=maker)
        return sorted(row.id for row in found)

    assert len(await left()) == 4
    await made(alice)
    assert await left() == sorted([maker, "tok-o3"]), "one that has just ended is listed, and its maker stays for it"
