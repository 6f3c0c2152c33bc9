"""Signing in over REST with ID tokens: good ones, forged ones, those of others, and keys that nobody knows."""

import asyncio
import base64
import hashlib
import hmac
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.people.newcomers import by_id_token, served
from tests.people.sign_in_world import ISSUER, SERVER, SignInWorld, unsigned

REFUSED = "urn:gpu-dev:problem:proof_refused"


async def test_an_issuer_vouches(newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime) -> None:
    now = runtime.clock.now()
    answer = await newcomer.post("/v1/login", json=by_id_token(world.issuer.token(world.issuer.claims(now))))
    assert answer.status_code == 201, answer.text
    assert answer.json()["user"] == "ada"
    by_curve = world.issuer.token(
        world.issuer.claims(now, email="Bob@LAB.example"), kid="ec-1", key=world.issuer.ec_key, alg="ES256"
    )
    assert (await newcomer.post("/v1/login", json=by_id_token(by_curve))).json()["user"] == "bob"
    # The keys are kept.
    assert world.issuer.fetches == 1


CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "another audience": ({"aud": "https://other.example"}, "for another audience"),
    "no audience": ({"aud": None}, "no audience"),
    "our audience among others, passed on by nobody knows whom": ({"aud": [SERVER, "x"]}, "azp"),
    "our audience among others, passed on by another": ({"aud": [SERVER, "x"], "azp": "x"}, "azp"),
    "another issuer": ({"iss": "https://evil.example"}, "issuer is not one of"),
    "almost our issuer": ({"iss": ISSUER + "/"}, "issuer is not one of"),
    "no issuer": ({"iss": None}, "issuer is not one of"),
    "no end": ({"exp": None}, "when it was issued and when it expires"),
    "no beginning": ({"iat": None}, "when it was issued and when it expires"),
    "an end that is no time": ({"exp": "tomorrow"}, "no time"),
    "nobody": ({"sub": None}, "names no subject"),
}


async def test_id_tokens_that_are_not_for_us_are_refused(
    newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime
) -> None:
    for what, (changed, why) in CLAIMS.items():
        claims = world.issuer.claims(runtime.clock.now(), **changed)
        answer = await newcomer.post("/v1/login", json=by_id_token(world.issuer.token(claims)))
        assert (answer.status_code, answer.json()["type"]) == (401, REFUSED), (what, answer.text)
        assert why in answer.json()["detail"], what


@pytest.mark.parametrize(
    ("shifts", "why"),
    [
        ({"iat": -1800, "exp": -600}, "expired"),
        ({"iat": -7200, "exp": 3600}, "expired"),  # good for too long
        ({"iat": 600, "exp": 3600}, "not valid yet"),
        ({"iat": 0, "exp": 3600, "nbf": 600}, "not valid yet"),
    ],
)
async def test_id_tokens_have_their_time(
    shifts: dict[str, int], why: str, newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime
) -> None:
    now = runtime.clock.now().timestamp()
    claims = world.issuer.claims(runtime.clock.now(), **{name: int(now + shift) for name, shift in shifts.items()})
    answer = await newcomer.post("/v1/login", json=by_id_token(world.issuer.token(claims)))
    assert answer.status_code == 401
    assert why in answer.json()["detail"]


async def test_an_address_that_nobody_verified_is_nobodys(
    newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime
) -> None:
    for verified in (False, None, "true", 1):
        claims = world.issuer.claims(runtime.clock.now(), email_verified=verified)
        answer = await newcomer.post("/v1/login", json=by_id_token(world.issuer.token(claims)))
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:gpu-dev:problem:not_let_in")


async def test_forged_signatures_are_refused(newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime) -> None:
    issuer = world.issuer
    claims = issuer.claims(runtime.clock.now())
    public = issuer.rsa_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    head = unsigned(claims, {"alg": "HS256", "kid": "rsa-1"}).rpartition(".")[0]
    by_public_key = hmac.new(public, head.encode(), hashlib.sha256).digest()
    good = issuer.token(claims)
    forged = {
        "alg none": unsigned(claims, {"alg": "none", "kid": "rsa-1"}),
        "alg None": unsigned(claims, {"alg": "None"}),
        "HS256 by the public key": unsigned(claims, {"alg": "HS256", "kid": "rsa-1"}, by_public_key),
        "another's key under the same name": issuer.token(claims, key=rsa.generate_private_key(65537, 2048)),
        "a curve's key named for RSA": issuer.token(claims, kid="rsa-1", key=issuer.ec_key, alg="ES256"),
        "an algorithm that is not allowed": issuer.token(claims, alg="RS512"),
        "claims changed": good.split(".")[0]
        + "."
        + unsigned({**claims, "email": "root@lab.example"}, {}).split(".")[1]
        + "."
        + good.split(".")[2],
        "its own key in the header": issuer.token(claims, kid=None, key=rsa.generate_private_key(65537, 2048)),
        "crit": unsigned(claims, {"alg": "RS256", "kid": "rsa-1", "crit": ["b64"]}, b"x"),
        "no JSON": "AAAAAAAA.AAAAAAAA.AAAA",
        "a list": ".".join(base64.urlsafe_b64encode(b"[1]").rstrip(b"=").decode() for _ in range(2)) + ".AAAA",
    }
    for what, token in forged.items():
        answer = await newcomer.post("/v1/login", json=by_id_token(token))
        assert (answer.status_code, answer.json()["type"]) == (401, REFUSED), what


async def test_a_flood_of_unknown_keys_asks_the_issuer_now_and_then(runtime: Runtime, world: SignInWorld) -> None:
    issuer = world.issuer
    claims = issuer.claims(runtime.clock.now())
    stranger = rsa.generate_private_key(65537, 2048)
    async with served(runtime, world, keys_every_s=3600) as client:
        flood = [by_id_token(issuer.token(claims, kid=f"unknown-{number}", key=stranger)) for number in range(20)]
        answers = await asyncio.gather(*(client.post("/v1/login", json=proof) for proof in flood))
        assert {answer.status_code for answer in answers} == {401}
        assert issuer.fetches == 1
        # Meanwhile those with a key that is known come in.
        assert (await client.post("/v1/login", json=by_id_token(issuer.token(claims)))).status_code == 201
        assert issuer.fetches == 1


async def test_a_new_key_is_found_and_small_or_secret_ones_are_none(runtime: Runtime, world: SignInWorld) -> None:
    from jwt.algorithms import RSAAlgorithm

    issuer = world.issuer
    claims = issuer.claims(runtime.clock.now())
    fresh = rsa.generate_private_key(65537, 2048)
    small = rsa.generate_private_key(65537, 1024)
    async with served(runtime, world, keys_every_s=1) as client:
        assert (await client.post("/v1/login", json=by_id_token(issuer.token(claims)))).status_code == 201
        issuer.shown["rsa-2"] = RSAAlgorithm.to_jwk(fresh.public_key(), as_dict=True)
        issuer.shown["small"] = RSAAlgorithm.to_jwk(small.public_key(), as_dict=True)
        issuer.shown["oct"] = {"kty": "oct", "k": "c2VjcmV0"}
        token = issuer.token(claims, kid="rsa-2", key=fresh)
        async with asyncio.timeout(60):
            while (await client.post("/v1/login", json=by_id_token(token))).status_code != 201:
                await asyncio.sleep(0.1)
        with pytest.warns(Warning, match="minimum"):
            weak = issuer.token(claims, kid="small", key=small)
        assert (await client.post("/v1/login", json=by_id_token(weak))).status_code == 401


async def test_an_issuer_that_is_away_is_no_refusal(runtime: Runtime, world: SignInWorld) -> None:
    port = world.network.ports.pop("issuer.example")
    claims = world.issuer.claims(runtime.clock.now())
    async with served(runtime, world, keys_every_s=1) as client:
        answer = await client.post("/v1/login", json=by_id_token(world.issuer.token(claims)))
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:gpu-dev:problem:proof_unavailable")
        world.network.ports["issuer.example"] = port
        async with asyncio.timeout(60):
            while (await client.post("/v1/login", json=by_id_token(world.issuer.token(claims)))).status_code != 201:
                await asyncio.sleep(0.1)


async def test_a_server_without_sign_ins_says_so(alice: httpx.AsyncClient, calling: Any) -> None:
    answer = await calling("anonymous").post("/v1/login", json=by_id_token("a" * 8 + ".b.c"))
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:gpu-dev:problem:not_let_in")
    assert "Ask an administrator" in answer.json()["detail"]


@pytest.mark.parametrize(
    "body", [{}, {"method": "password"}, {"method": "oidc"}, {"method": "oidc", "id_token": "x" * 20_000}, []]
)
async def test_what_is_no_proof_is_refused_without_showing_it(body: Any, newcomer: httpx.AsyncClient) -> None:
    answer = await newcomer.post("/v1/login", json=body)
    assert answer.status_code == 422
    assert "xxxx" not in answer.text
