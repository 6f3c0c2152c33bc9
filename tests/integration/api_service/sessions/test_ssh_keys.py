"""SSH keys over REST, and certificates as OpenSSH reads them."""

import asyncio
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncssh
import httpx
import pytest
from fastapi import FastAPI

from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.sessions.server_keys import certificate_authority, find_certificate_owner, host_key
from reservation_core.usecases.sessions.ssh_keys import MOST_KEYS
from tests.database.sql import sql


def fresh() -> str:
    return asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()


async def events(root: httpx.AsyncClient, subject: str) -> list[tuple[str, str, dict[str, Any]]]:
    """What the audit log says of a subject, oldest first."""
    page = (await root.get("/v1/events", params={"subject": subject})).json()
    return [(event["kind"], event["actor"], event["data"]) for event in reversed(page["items"])]


async def test_keys_are_added_listed_and_removed(
    alice: httpx.AsyncClient, bob: httpx.AsyncClient, root: httpx.AsyncClient
) -> None:
    line = fresh()
    added = await alice.post("/v1/keys", json={"public_key": f"{line} ann@laptop\n"})
    assert added.status_code == 201, added.text
    key = added.json()
    assert key == {
        "id": key["id"],
        "user": "alice",
        "name": "ann@laptop",
        "type": "ssh-ed25519",
        "fingerprint": asyncssh.import_public_key(line).get_fingerprint(),
        "public_key": line,
        "created_at": key["created_at"],
        "last_used_at": None,
    }
    again = await alice.post("/v1/keys", json={"public_key": line, "name": "another"})
    assert (again.status_code, again.json()) == (200, key)
    named = (await alice.post("/v1/keys", json={"public_key": fresh(), "name": "desk"})).json()
    assert named["name"] == "desk"
    theirs = (await bob.post("/v1/keys", json={"public_key": line})).json()
    assert theirs["id"] != key["id"]

    listed = (await alice.get("/v1/keys")).json()["items"]
    assert listed == sorted([key, named], key=lambda found: str(found["id"]))
    assert [found["user"] for found in (await bob.get("/v1/keys")).json()["items"]] == ["bob"]
    assert len((await root.get("/v1/keys")).json()["items"]) == 3
    assert (await root.get("/v1/keys?user=bob")).json()["items"] == [theirs]
    assert (await bob.get("/v1/keys?user=alice")).json()["items"] == []
    first = (await alice.get("/v1/keys?limit=1")).json()
    rest = (await alice.get("/v1/keys", params={"limit": 1, "cursor": first["next_cursor"]})).json()
    assert [*first["items"], *rest["items"]] == listed
    assert rest["next_cursor"] is None

    assert (await bob.delete(f"/v1/keys/{key['id']}")).status_code == 404
    removed = await alice.delete(f"/v1/keys/{key['id']}")
    assert (removed.status_code, removed.json()) == (200, key)
    assert (await alice.delete(f"/v1/keys/{key['id']}")).status_code == 404
    assert (await alice.get("/v1/keys")).json()["items"] == [named]
    data = {"user": "alice", "fingerprint": key["fingerprint"]}
    assert await events(root, key["id"]) == [("ssh_key_added", "alice", data), ("ssh_key_removed", "alice", data)]


async def test_one_key_is_added_once_however_often_it_is_sent_at_once(alice: httpx.AsyncClient) -> None:
    line = fresh()
    answers = await asyncio.gather(*(alice.post("/v1/keys", json={"public_key": line}) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 201]
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_an_idempotency_key_repeats_the_answer(alice: httpx.AsyncClient) -> None:
    body, headers = {"public_key": fresh()}, {"Idempotency-Key": "k-1"}
    first = await alice.post("/v1/keys", json=body, headers=headers)
    again = await alice.post("/v1/keys", json=body, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    other = await alice.post("/v1/keys", json={"public_key": fresh()}, headers=headers)
    assert other.status_code == 409


@pytest.mark.parametrize("path", ["/v1/keys", "/v1/ssh-certificates"])
async def test_what_is_no_public_key_is_refused_in_words(alice: httpx.AsyncClient, path: str) -> None:
    private = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
    for text, words in (("nonsense", "A public key is one line"), (private, "This is a private key")):
        refused = await alice.post(path, json={"public_key": text})
        assert (refused.status_code, refused.json()["type"]) == (422, "urn:gpu-dev:problem:public_key_refused")
        assert words in refused.json()["detail"]
        assert "nonsense" not in refused.text
        assert private.splitlines()[1] not in refused.text
    assert (await alice.get("/v1/keys")).json()["items"] == []


async def test_a_user_has_so_many_keys_and_no_more(alice: httpx.AsyncClient, runtime: Runtime) -> None:
    await alice.post("/v1/keys", json={"public_key": fresh()})
    async with runtime.uow() as uow:
        await sql(
            uow,
            "INSERT INTO ssh_keys (id, user_id, fingerprint, public_key, created_at) "
            "SELECT 'key-' || n, k.user_id, sha256(CAST(CAST(n AS text) AS bytea)), 'x', now() "
            "FROM ssh_keys k, generate_series(2, :most) n",
            most=MOST_KEYS,
        )
    refused = await alice.post("/v1/keys", json={"public_key": fresh()})
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:gpu-dev:problem:limit_exceeded")
    assert "You have 100 SSH keys already" in refused.json()["detail"]


def shown_by_openssh(certificate: str, path: Path) -> str:
    path.write_text(certificate)
    return subprocess.run(["ssh-keygen", "-L", "-f", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("algorithm", ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"])
async def test_certificates_are_for_their_user_and_an_hour(
    alice: httpx.AsyncClient, root: httpx.AsyncClient, runtime: Runtime, tmp_path: Path, algorithm: str
) -> None:
    line = asyncssh.generate_private_key(algorithm).export_public_key().decode().strip()
    before = datetime.now(UTC)
    answer = await alice.post("/v1/ssh-certificates", json={"public_key": line})
    assert answer.status_code == 201, answer.text
    issued = answer.json()
    until = datetime.fromisoformat(issued["valid_until"])
    second = timedelta(seconds=1)
    assert before - second <= until - timedelta(hours=1) <= datetime.now(UTC) + second
    async with runtime.uow() as uow:
        authority, host = await certificate_authority(uow, before), await host_key(uow, before)
        assert issued["host_key"] == host.public_key
    shown = shown_by_openssh(issued["certificate"], tmp_path / "key-cert.pub")
    [token] = [token for token in (await alice.get("/v1/tokens")).json()["items"] if token["name"] == "alice"]
    assert "user certificate" in shown
    assert f'Key ID: "user=alice token={token["id"]}"' in shown
    assert shown.partition("Principals:")[2].split()[:3] == ["alice", "Critical", "Options:"]
    assert f"to {until.astimezone():%Y-%m-%dT%H:%M:%S}" in shown
    assert asyncssh.import_public_key(authority.public_key).get_fingerprint() in shown
    assert {"permit-pty", "permit-port-forwarding"} <= set(shown.split())
    assert "permit-X11-forwarding" not in shown
    fingerprint = asyncssh.import_public_key(line).get_fingerprint()
    logged = (await root.get("/v1/events", params={"kind": "ssh_certificate_issued"})).json()["items"]
    assert [(event["subject"], event["data"]) for event in logged] == [
        (token["id"], {"user": "alice", "fingerprint": fingerprint})
    ]


async def test_a_certificate_ends_with_its_token(alice: httpx.AsyncClient, app: FastAPI, runtime: Runtime) -> None:
    made = (await alice.post("/v1/tokens", json={"expires_in": "PT10M", "scopes": ["sessions"]})).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers) as short:
        issued = (await short.post("/v1/ssh-certificates", json={"public_key": fresh()})).json()
        assert issued["valid_until"] <= made["expires_at"]
        assert issued["valid_until"][:19] == made["expires_at"][:19]
        certificate = asyncssh.import_certificate(issued["certificate"])
        key_id = certificate._key_id
        async with runtime.uow() as uow:
            assert await find_certificate_owner(uow, key_id, runtime.clock.now()) is not None
        await alice.delete(f"/v1/tokens/{made['id']}")
        async with runtime.uow() as uow:
            assert await find_certificate_owner(uow, key_id, runtime.clock.now()) is None
        assert (await short.post("/v1/ssh-certificates", json={"public_key": fresh()})).status_code == 401
