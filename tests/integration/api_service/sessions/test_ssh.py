"""SSH over a WebSocket of the API, by OpenSSH's own client."""

import hashlib
import os
import sys
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from reservation_core.runtime.wiring import Runtime
from tests.integration.api_service.callers import People
from tests.integration.api_service.served import Served
from tests.integration.ssh_gateway.ssh_clients import SshClient, add_key
from tests.waiting import eventually

PROXY = Path(__file__).with_name("stdio_proxy.py")


@pytest.fixture
async def client(runtime: Runtime, served: Served, people: People, tmp_path: Path) -> SshClient:
    """Alice's client, which reaches the API alone."""
    made = SshClient(tmp_path / "alice", 22)
    command = f"{sys.executable} {PROXY} {served.base_url.replace('http', 'ws')}/v1/ssh {people.secrets['alice']}"
    config = made.folder / "config"
    config.write_text(f"{config.read_text()}    ProxyCommand {command}\n")
    async with runtime.uow() as uow:
        alice = people.principals["alice"]
        await add_key(uow, alice.user_id, "key-alice", made.public_key, runtime.clock.now())
    return made


async def test_ssh_goes_through_the_api_alone(runtime: Runtime, client: SshClient, job: str) -> None:
    ended = await client.run("box@gw", "echo in; exit 3")
    assert (ended.code, ended.out) == (3, b"in\n"), ended.err
    content = os.urandom(8 * 1024 * 1024)
    ended = await client.run("box@gw", "tee copy | sha256sum; cat copy", input=content)
    words, _, back = ended.out.partition(b"\n")
    assert words.split()[0].decode() == hashlib.sha256(content).hexdigest()
    assert back == content
    await eventually(lambda: runtime.ssh.open == 0)


async def test_the_api_wants_a_token_before_ssh_begins(served: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"{served.base_url.replace('http', 'ws')}/v1/ssh", proxy=None)
    assert refused.value.response.status_code == 401
