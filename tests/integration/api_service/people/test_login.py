"""Signing in over REST with a request that AWS checks: good, forged, replayed, or meant for others; and the token."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from reservation_core.domain.statuses import Role
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from tests.integration.api_service.people.newcomers import served
from tests.integration.api_service.people.signed_requests import ADA, REFUSED, presigned, signed
from tests.people.sign_in_world import ACCOUNT, SERVER, STS, SignInWorld


async def test_aws_vouches_and_the_token_works_for_a_while(
    newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime
) -> None:
    before = runtime.clock.now()
    with capture_logs() as logs:
        answer = await newcomer.post("/v1/login", json=signed(world))
    assert answer.status_code == 201, answer.text
    said = answer.json()
    assert (said["user"], said["role"], answer.headers["cache-control"]) == ("ada", "user", "no-store")
    me = await newcomer.get("/v1/users/me", headers={"Authorization": f"Bearer {said['token']}"})
    assert me.json()["name"] == "ada"
    listed = await newcomer.get("/v1/tokens", headers={"Authorization": f"Bearer {said['token']}"})
    [token] = listed.json()["items"]
    assert (token["id"], token["name"]) == (said["token_id"], f"aws: {ADA}")
    async with runtime.uow() as uow:
        [record] = await uow.identities.tokens(None, after=None, limit=5)
    assert record.expires_at is not None
    assert timedelta(minutes=59) < record.expires_at - before < timedelta(minutes=70)
    # What went to AWS is what was signed, and nothing beside it.
    [sent] = world.sts.receiver.got
    assert (sent.path, sent.body) == ("/", b"Action=GetCallerIdentity&Version=2011-06-15")
    assert sent.headers["x-gpudev-server-id"] == SERVER
    assert said["token"] not in repr(logs)
    assert "secret-of" not in repr(logs)


async def test_a_presigned_address_does_as_well(newcomer: httpx.AsyncClient, world: SignInWorld) -> None:
    answer = await newcomer.post("/v1/login", json=presigned(world))
    assert answer.status_code == 201, answer.text
    assert answer.json()["user"] == "ada"


async def test_the_record_says_who_signed_in_by_what(
    newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime, database_url: str
) -> None:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    assert (await newcomer.post("/v1/login", json=signed(world))).status_code == 201
    engine = create_async_engine(database_url)
    async with engine.connect() as connection:
        rows = (await connection.execute(text("SELECT kind, actor, data FROM events ORDER BY id"))).all()
    await engine.dispose()
    assert [(row.kind, row.actor) for row in rows] == [("user_created", "ada"), ("signed_in", "ada")]
    assert rows[-1].data == {"user": "ada", "method": "aws", "identity": ADA}


async def test_a_signature_is_good_once(newcomer: httpx.AsyncClient, world: SignInWorld) -> None:
    proof = signed(world)
    assert (await newcomer.post("/v1/login", json=proof)).status_code == 201
    again = await newcomer.post("/v1/login", json=proof)
    assert (again.status_code, again.json()["type"]) == (401, REFUSED)
    assert "used before" in again.json()["detail"]
    assert again.headers["www-authenticate"].startswith("Bearer")
    # Another form of the same: the case of names, and what is not signed.
    other = {**proof, "headers": {name.upper(): value for name, value in proof["headers"].items()}}
    assert (await newcomer.post("/v1/login", json=other)).status_code == 401


async def test_two_servers_that_get_it_at_once_make_one_token(
    world: SignInWorld, runtime: Runtime, database_url: str, tmp_path: Path
) -> None:
    settings = ApiSettings(home=tmp_path / "other", local_gpus="h100:1")
    async with (
        open_runtime(settings, database_url) as second,
        served(runtime, world) as one,
        served(second, world) as two,
    ):
        for number in range(5):
            proof = signed(world, key=f"AKIAEXAMPLEOFADA{number}")
            answers = await asyncio.gather(*(caller.post("/v1/login", json=proof) for caller in (one, two, one, two)))
            assert sorted(answer.status_code for answer in answers) == [201, 401, 401, 401]


def _headers(change: Callable[[dict[str, str]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda proof: change(proof["headers"])


def _at(url: str) -> Callable[[dict[str, Any]], Any]:
    return lambda proof: proof.update(url=url)


def _unsigned(name: str) -> Callable[[dict[str, Any]], Any]:
    """The header is sent, and the signature says nothing of it."""

    def change(headers: dict[str, str]) -> None:
        headers["Authorization"] = headers["Authorization"].replace(f";{name}", "")

    return _headers(change)


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another server's id": (
        _headers(lambda h: h.update({"x-gpudev-server-id": "https://evil.example"})),
        "not signed for",
    ),
    "no server's id": (_headers(lambda h: h.pop("x-gpudev-server-id")), "not signed for"),
    "the id is there, and not signed": (_unsigned("x-gpudev-server-id"), "must be signed"),
    "a session that is not signed": (_unsigned("x-amz-security-token"), "must be signed"),
    "a date that is not signed": (_unsigned("x-amz-date"), "must be signed"),
    "a host that is not signed": (_unsigned("host"), "must be signed"),
    "another host": (_at("https://evil.example/"), "must be signed for one of"),
    "a region nobody allowed": (_at("https://sts.eu-west-1.amazonaws.com/"), "must be signed for one of"),
    "userinfo": (_at(f"https://{STS}@evil.example/"), "must be signed for one of"),
    "a host behind userinfo": (_at(f"https://evil.example@{STS}/"), "must be signed for one of"),
    "a port": (_at(f"https://{STS}:8443/"), "must be signed for one of"),
    "no TLS": (_at(f"http://{STS}/"), "must be signed for one of"),
    "a path": (_at(f"https://{STS}/latest/meta-data"), "must be signed for one of"),
    "dots": (_at(f"https://{STS}/../x"), "must be signed for one of"),
    "a fragment": (_at(f"https://{STS}/#@evil.example"), "must be signed for one of"),
    "a backslash": (_at(f"https://{STS}\\@evil.example/"), "must be signed for one of"),
    "upper case": (_at("https://STS.amazonaws.com/"), "must be signed for one of"),
    "a host that only begins so": (_at(f"https://{STS}.evil.example/"), "must be signed for one of"),
    "loopback": (_at("https://127.0.0.1/"), "must be signed for one of"),
    "a line break": (_at(f"https://{STS}/\r\nHost: evil.example"), "must be printable"),
    "another call": (_at(f"https://{STS}/?Action=AssumeRole"), "must have no query"),
    "another Host": (_headers(lambda h: h.update({"Host": "evil.example"})), "Host header"),
    "a header of another's": (_headers(lambda h: h.update({"X-Forwarded-Host": "evil.example"})), "x-forwarded-host"),
    "a header with a line break": (_headers(lambda h: h.update({"X-Amz-Date": "x\r\ny: z"})), "not printable"),
    "a header twice": (_headers(lambda h: h.update({"HOST": STS})), "twice"),
    "another service": (
        _headers(lambda h: h.update({"Authorization": h["Authorization"].replace("/sts/", "/iam/")})),
        "Authorization header",
    ),
    "another body": (_headers(lambda h: h.update({"Content-Length": "44"})), "body must be"),
    "another day": (_headers(lambda h: h.update({"X-Amz-Date": "20200101T000000Z"})), "of the day"),
    "a target": (_headers(lambda h: h.update({"x-amz-target": "x"})), "x-amz-target"),
    "two signatures": (
        _headers(lambda h: h.update({"Authorization": h["Authorization"] + ", Signature=" + "0" * 64})),
        "Authorization header",
    ),
}


async def test_what_is_forged_goes_nowhere(newcomer: httpx.AsyncClient, world: SignInWorld) -> None:
    for forgery, (change, why) in FORGERIES.items():
        proof = signed(world)
        change(proof)
        answer = await newcomer.post("/v1/login", json=proof)
        assert (answer.status_code, answer.json()["type"]) == (401, REFUSED), (forgery, answer.text)
        assert why in answer.json()["detail"], forgery
    assert world.network.asked == []


async def test_a_refused_proof_leaves_a_line_in_the_access_log_without_the_proof(
    runtime: Runtime, world: SignInWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    stolen = signed(world)
    stolen["headers"]["Authorization"] = stolen["headers"]["Authorization"][:-64] + "0" * 64
    async with served(runtime, world) as client:
        assert (await client.post("/v1/login", json=stolen)).status_code == 401
        assert (await client.post("/v1/login", json=signed(world))).status_code == 201
    written = capsys.readouterr().err
    found = [json.loads(line) for line in written.splitlines() if '"event": "access"' in line]
    assert [(access["route"], access["status"], access["user"]) for access in found] == [
        ("/v1/login", 401, None),
        ("/v1/login", 201, "ada"),
    ]
    assert "Signature=" not in written


async def test_what_aws_does_not_accept_is_refused(newcomer: httpx.AsyncClient, world: SignInWorld) -> None:
    stolen = signed(world)
    stolen["headers"]["Authorization"] = stolen["headers"]["Authorization"][:-64] + "0" * 64
    renamed = signed(world)
    renamed["headers"]["X-Amz-Security-Token"] = "another session"
    unknown = signed(world, key="AKIAEXAMPLEOFEVE")
    del world.sts.secrets["AKIAEXAMPLEOFEVE"]
    for proof in (stolen, renamed, unknown):
        answer = await newcomer.post("/v1/login", json=proof)
        assert (answer.status_code, answer.json()["type"]) == (401, REFUSED)
        assert "AWS does not accept" in answer.json()["detail"]


@pytest.mark.parametrize(
    "change", ["X-Amz-SignedHeaders=host", "Action=AssumeRole", "X-Amz-Expires=60&X-Amz-Expires=61", "&x=1"]
)
async def test_a_presigned_address_that_was_changed_goes_nowhere(
    change: str, newcomer: httpx.AsyncClient, world: SignInWorld
) -> None:
    proof = presigned(world)
    name = change.partition("=")[0]
    if change.startswith("&"):
        proof["url"] += change
    else:
        head, _, rest = proof["url"].partition(f"{name}=")
        proof["url"] = head + change + ("&" + rest.partition("&")[2] if "&" in rest else "")
    answer = await newcomer.post("/v1/login", json=proof)
    assert answer.status_code == 401, answer.text
    assert world.network.asked == []


async def test_a_presigned_address_without_our_name_in_the_signature_goes_nowhere(
    newcomer: httpx.AsyncClient, world: SignInWorld
) -> None:
    answer = await newcomer.post("/v1/login", json=presigned(world, signed_headers=False))
    assert answer.status_code == 401
    assert "x-gpudev-server-id" in answer.json()["detail"]
    assert world.network.asked == []


@pytest.mark.parametrize("minutes", [6, -2])
async def test_old_signatures_and_those_of_tomorrow_are_refused(
    minutes: int, newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = signed(world)
    later = runtime.clock.now() + timedelta(minutes=minutes)
    monkeypatch.setattr(type(runtime.clock), "now", lambda _self: later)
    answer = await newcomer.post("/v1/login", json=proof)
    assert answer.status_code == 401
    assert "Sign a new one" in answer.json()["detail"]
    assert world.network.asked == []


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:sts::999999999999:assumed-role/gpu-users/ada",
        f"arn:aws:sts::{ACCOUNT}:assumed-role/other/ada",
        f"arn:aws:iam::{ACCOUNT}:user/gpu-users",
        f"arn:aws:iam::{ACCOUNT}:root",
        f"arn:aws:sts::{ACCOUNT}:federated-user/gpu-users",
        f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu-users/Not A Name!",
    ],
)
async def test_who_is_known_and_not_let_in_hears_what_to_ask_for(
    arn: str, newcomer: httpx.AsyncClient, world: SignInWorld
) -> None:
    answer = await newcomer.post("/v1/login", json=signed(world, arn=arn))
    assert answer.status_code in (401, 403)
    if answer.status_code == 403:
        assert answer.json()["type"] == "urn:gpu-dev:problem:not_let_in"
        assert "dministrator" in answer.json()["detail"] or "Sign in as" in answer.json()["detail"]


async def test_no_rule_gives_more_than_the_user_has(
    newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime
) -> None:
    async with runtime.uow() as uow:
        await uow.identities.create_user("ada", Role.ADMIN, runtime.clock.now())
    answer = await newcomer.post("/v1/login", json=signed(world))
    assert answer.status_code == 403
    assert "correct one of the two" in answer.json()["detail"]
    root = signed(world, arn=f"arn:aws:iam::{ACCOUNT}:user/ops/root-of-gpus", key="AKIAEXAMPLEOFROOT")
    absent = await newcomer.post("/v1/login", json=root)
    assert absent.status_code == 403
    assert "who does not exist" in absent.json()["detail"]
    async with runtime.uow() as uow:
        await uow.identities.create_user("root", Role.ADMIN, runtime.clock.now())
    # The proof was not used up: nobody got a token for it.
    assert (await newcomer.post("/v1/login", json=root)).json()["role"] == "admin"


async def test_disabled_users_stay_out_and_names_with_a_meaning_are_nobodys(
    newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime
) -> None:
    async with runtime.uow() as uow:
        await uow.identities.create_user("ada", Role.USER, runtime.clock.now())
        await uow.identities.disable_user("ada", runtime.clock.now())
    answer = await newcomer.post("/v1/login", json=signed(world))
    assert answer.status_code == 403
    assert "disabled" in answer.json()["detail"]
    for name in ("me", "system", "planner"):
        arn = f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu-users/{name}"
        assert (await newcomer.post("/v1/login", json=signed(world, arn=arn))).status_code == 403


async def test_who_signed_in_for_a_while_makes_no_token_that_lasts(
    newcomer: httpx.AsyncClient, world: SignInWorld, runtime: Runtime
) -> None:
    token = (await newcomer.post("/v1/login", json=signed(world))).json()["token"]
    mine = {"Authorization": f"Bearer {token}"}
    for longer in ({}, {"expires_in": 86_400}):
        refused = await newcomer.post("/v1/tokens", json=longer, headers=mine)
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:gpu-dev:problem:forbidden")
    shorter = await newcomer.post("/v1/tokens", json={"expires_in": 60}, headers=mine)
    assert shorter.status_code == 201
    # Nor does a token made with a token of a sign-in.
    again = await newcomer.post("/v1/tokens", json={}, headers={"Authorization": f"Bearer {shorter.json()['token']}"})
    assert again.status_code == 403
