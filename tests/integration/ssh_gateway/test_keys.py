"""Keys, certificates, wrong keys, and the key of the host."""

import asyncio
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from structlog.testing import capture_logs

from reservation_core.runtime.settings.components import SshGatewaySettings
from reservation_core.runtime.ssh import key_checks
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.sessions.server_keys import certificate_authority, certificate_id
from tests.database.sql import sql
from tests.integration.ssh_gateway.conftest import Gateway, gateway_of
from tests.integration.ssh_gateway.ssh_clients import SshClient, add_key
from tests.waiting import PATIENCE_S, eventually


async def certify(runtime: Runtime, client: SshClient, user: str, user_id: int, wrong: str = "") -> str:
    """Give a client a certificate, right unless `wrong` says how not; returns the id of its token."""
    now = runtime.clock.now()
    token = runtime.ids.new_id("tok")
    async with runtime.uow() as uow:
        await uow.identities.create_token(token, user_id, "cli", runtime.ids.digest(token), None, now)
        authority = asyncssh.import_private_key((await certificate_authority(uow, now)).private_key)
    if wrong == "of another authority":
        authority = asyncssh.generate_private_key("ssh-ed25519")
    make = authority.generate_host_certificate if wrong == "of a host" else authority.generate_user_certificate
    until = (now - timedelta(minutes=1) if wrong == "expired" else now + timedelta(hours=1)).timestamp()
    certificate = make(
        asyncssh.import_public_key(client.public_key),
        certificate_id(user, token),
        principals=[user, "box"],  # the name that is entered, as who makes one may write anything
        valid_after=(now - timedelta(hours=1)).timestamp(),
        valid_before=until,
    )
    client.key.with_name("id_ed25519-cert.pub").write_bytes(certificate.export_certificate())
    return token


@pytest.fixture
def bob(gateway: Gateway, tmp_path: Path) -> SshClient:
    """Bob's client, whose key the server does not know."""
    return SshClient(tmp_path / "bob", gateway.port)


async def test_an_unknown_key_is_refused_and_logged(bob: SshClient, job: str) -> None:
    with capture_logs() as log:
        ended = await bob.run("box@gw", "true")
    assert ended.code == 255
    assert "Permission denied (publickey)" in ended.err
    refused = [line for line in log if line["event"] == "ssh_key_refused"]
    printed = subprocess.run(["ssh-keygen", "-lf", str(bob.key)], check=True, capture_output=True, text=True).stdout
    assert [(line["user"], line["address"]) for line in refused] == [("box", "127.0.0.1")]
    assert refused[0]["key"] == printed.split()[1]


async def test_a_known_key_opens_no_job_of_another_user(
    runtime: Runtime, bob: SshClient, users: dict[str, int], job: str
) -> None:
    async with runtime.uow() as uow:
        await add_key(uow, users["bob"], "key-bob", bob.public_key, runtime.clock.now())
    for name in ("box", job):
        ended = await bob.run(f"{name}@gw", "true")
        assert (ended.code, f"You have no job {name}" in ended.err) == (255, True)
    async with runtime.uow() as uow:
        await sql(
            uow, "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES (:job, :user, now())",
            job=job, user=users["bob"],
        )  # fmt: skip
    assert (await bob.run("box@gw", "echo in")).out == b"in\n"


async def test_the_job_says_which_user_of_a_key_is_meant(
    runtime: Runtime, alice: SshClient, users: dict[str, int], job: str, start_job: Callable[..., Any]
) -> None:
    async with runtime.uow() as uow:
        await add_key(uow, users["bob"], "key-shared", alice.public_key, runtime.clock.now())
    assert (await alice.run("box@gw", "echo $CUDA_VISIBLE_DEVICES")).out == b"1\n"
    bobs = await start_job("bobs", "bob", 2)
    assert (await alice.run("bobs@gw", "echo $CUDA_VISIBLE_DEVICES")).out == b"2\n"
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE reservations SET name = 'box' WHERE id = :id", id=bobs)
    ended = await alice.run("box@gw", "true")
    assert ended.code == 255
    assert f"Several running jobs are named box: {', '.join(sorted((job, bobs)))}." in ended.err


async def test_a_certificate_opens_jobs_of_its_user_while_its_token_works(
    runtime: Runtime, bob: SshClient, users: dict[str, int], job: str
) -> None:
    token = await certify(runtime, bob, "alice", users["alice"])
    assert (await bob.run("box@gw", "echo in")).out == b"in\n"
    async with runtime.uow() as uow:
        await uow.identities.revoke_token(token, None, runtime.clock.now())
    ended = await bob.run("box@gw", "true")
    assert (ended.code, "Permission denied (publickey)" in ended.err) == (255, True)


@pytest.mark.parametrize("wrong", ["expired", "of another authority", "of a host"])
async def test_no_other_certificate_is_taken(
    runtime: Runtime, bob: SshClient, users: dict[str, int], job: str, wrong: str
) -> None:
    await certify(runtime, bob, "alice", users["alice"], wrong)
    ended = await bob.run("box@gw", "true")
    assert (ended.code, "Permission denied (publickey)" in ended.err) == (255, True)


async def test_the_host_key_stays_over_restarts(
    runtime: Runtime, settings: SshGatewaySettings, users: dict[str, int], job: str, tmp_path: Path
) -> None:
    client = SshClient(tmp_path / "alice", 1)
    async with runtime.uow() as uow:
        await add_key(uow, users["alice"], "key-alice", client.public_key, runtime.clock.now())
    known = ["-o", "HostKeyAlias=gw", "box@gw", "echo in"]
    strict = ["-o", "StrictHostKeyChecking=yes", *known]
    async with gateway_of(runtime, settings) as first:
        assert (await client.run("-p", str(first.port), *known)).out == b"in\n"
    async with gateway_of(runtime, settings) as second:
        assert (await client.run("-p", str(second.port), *strict)).out == b"in\n"
        (client.folder / "known_hosts").write_text(f"gw {client.public_key}")
        assert (await client.run("-p", str(second.port), *strict)).code == 255


async def test_unknown_keys_are_slowed_by_address(
    runtime: Runtime, users: dict[str, int], job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_checks, "_LONGEST_DELAY_S", 1.0)
    clock = asyncio.get_running_loop()
    ssh = {"listen": "127.0.0.1:0", "wrong_keys_per_s": 0.001, "wrong_keys_burst": 2}
    async with gateway_of(runtime, SshGatewaySettings.model_validate({"ssh": ssh})) as gateway:
        stranger = SshClient(tmp_path / "stranger", gateway.port)
        alice = SshClient(tmp_path / "alice", gateway.port)
        async with runtime.uow() as uow:
            await add_key(uow, users["alice"], "key-alice", alice.public_key, runtime.clock.now())
        with capture_logs() as log:
            for _ in range(3):
                began = clock.time()
                assert (await stranger.run("box@gw", "true")).code == 255
        assert clock.time() - began >= 1.0
        assert [line["slowed"] for line in log if line["event"] == "ssh_key_refused"] == [False, False, True]
        assert (await alice.run("box@gw", "echo in")).out == b"in\n"


async def test_a_client_must_authenticate_in_time(runtime: Runtime, job: str) -> None:
    ssh = {"listen": "127.0.0.1:0", "handshake_s": 0.3}
    async with gateway_of(runtime, SshGatewaySettings.model_validate({"ssh": ssh})) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        assert (await reader.readline()).startswith(b"SSH-2.0-gpu-dev")
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
        await eventually(lambda: runtime.ssh.open == 0)


async def test_strangers_are_few_at_a_time(runtime: Runtime, job: str) -> None:
    ssh = {"listen": "127.0.0.1:0", "handshakes": 2}
    async with gateway_of(runtime, SshGatewaySettings.model_validate({"ssh": ssh})) as gateway:
        opened = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(2)]
        for reader, _ in opened:
            await asyncio.wait_for(reader.readline(), PATIENCE_S)
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        for _, other in (*opened, (reader, writer)):
            other.close()
            await other.wait_closed()
        await eventually(lambda: runtime.ssh.open == 0)


async def test_a_client_sends_little_before_it_has_authenticated(gateway: Gateway, runtime: Runtime) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    await reader.readline()
    writer.write(b"SSH-2.0-flood\r\n" + b"x" * 1024 * 1024)
    await eventually(lambda: runtime.ssh.open == 0)
    writer.close()


async def test_a_revoked_key_ends_what_is_open(runtime: Runtime, alice: SshClient, job: str) -> None:
    process = await alice.start("box@gw", "echo in; cat")
    assert process.stdout is not None
    assert process.stderr is not None
    assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_S) == b"in\n"
    async with runtime.uow() as uow:
        await uow.ssh_keys.remove("key-alice", None)
    errors = await asyncio.wait_for(process.stderr.read(), PATIENCE_S)
    assert await process.wait() == 255
    assert b"your access was withdrawn" in errors


async def test_the_end_of_the_job_ends_the_connection(runtime: Runtime, alice: SshClient, job: str) -> None:
    process = await alice.start("-N", "box@gw")

    async def is_in_the_job() -> bool:
        async with runtime.uow() as uow:
            return bool((await sql(uow, "SELECT id FROM connections")).all())

    await eventually(is_in_the_job)
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE reservations SET attempt = 2 WHERE id = :id", id=job)
    assert process.stderr is not None
    errors = await asyncio.wait_for(process.stderr.read(), PATIENCE_S)
    assert await process.wait() == 255
    assert b"the job has ended" in errors
