"""Signing in over REST when many do at once, and when those who vouch are busy or say nonsense."""

import asyncio

import httpx
import pytest
from aiohttp import web

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.people.newcomers import by_id_token, served
from tests.integration.api_service.people.test_login import REFUSED, signed
from tests.people.sign_in_world import ISSUER, SignInWorld

UNAVAILABLE = "urn:gpu-dev:problem:proof_unavailable"


async def test_jobs_of_one_machine_that_sign_in_in_the_same_second_all_get_in(
    newcomer: httpx.AsyncClient, world: SignInWorld
) -> None:
    """They have the same credentials, and Amazon's dates have no parts of seconds."""
    proofs = [signed(world) for _ in range(8)]
    answers = await asyncio.gather(*(newcomer.post("/v1/login", json=proof) for proof in proofs))
    assert [answer.status_code for answer in answers] == [201] * 8
    # What makes them differ is signed, too: nobody else makes a new one of it.
    other = {**proofs[0], "headers": {**proofs[0]["headers"], "x-gpudev-nonce": "another"}}
    again = await newcomer.post("/v1/login", json=other)
    assert (again.status_code, again.json()["type"]) == (401, REFUSED)


async def test_what_makes_it_differ_must_be_signed(newcomer: httpx.AsyncClient, world: SignInWorld) -> None:
    proof = signed(world)
    proof["headers"]["Authorization"] = proof["headers"]["Authorization"].replace(";x-gpudev-nonce", "")
    answer = await newcomer.post("/v1/login", json=proof)
    assert (answer.status_code, answer.json()["type"]) == (401, REFUSED)
    assert "must be signed" in answer.json()["detail"]
    assert world.network.asked == []


@pytest.mark.parametrize("code", ["Throttling", "RequestLimitExceeded"])
async def test_a_signature_is_not_to_blame_where_aws_is_busy(
    code: str, newcomer: httpx.AsyncClient, world: SignInWorld
) -> None:
    async def busy(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"Error": {"Code": code}}, status=400)

    honest, world.sts.receiver.answer = world.sts.receiver.answer, busy
    proof = signed(world)
    answer = await newcomer.post("/v1/login", json=proof)
    assert (answer.status_code, answer.json()["type"]) == (503, UNAVAILABLE)
    world.sts.receiver.answer = honest
    assert (await newcomer.post("/v1/login", json=proof)).status_code == 201


@pytest.mark.parametrize("code", [["Throttling"], {}, None])
async def test_a_refusal_in_odd_words_is_one(code: object, newcomer: httpx.AsyncClient, world: SignInWorld) -> None:
    async def odd(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"Error": {"Code": code}}, status=400)

    world.sts.receiver.answer = odd
    answer = await newcomer.post("/v1/login", json=signed(world))
    assert (answer.status_code, answer.json()["type"]) == (401, REFUSED)


@pytest.mark.parametrize(
    "address", ["https://[issuer.example/keys", "http://issuer.example/keys", "https://\u00e9/k", 1]
)
async def test_an_issuer_that_names_its_keys_oddly_is_no_error_of_ours(
    address: object, runtime: Runtime, world: SignInWorld
) -> None:
    async def odd(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"issuer": ISSUER, "jwks_uri": address})

    world.issuer.receiver.answer = odd
    token = world.issuer.token(world.issuer.claims(runtime.clock.now()))
    async with served(runtime, world) as client:
        for _ in range(2):
            answer = await client.post("/v1/login", json=by_id_token(token))
            assert (answer.status_code, answer.json()["type"]) == (503, UNAVAILABLE), answer.text
