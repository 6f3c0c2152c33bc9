"""Ports of a job by OpenSSH's own client, and what it can't forward."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from tests.integration.ssh_gateway.conftest import Gateway
from tests.integration.ssh_gateway.ssh_clients import SshClient
from tests.programs.ports import own_port
from tests.waiting import PATIENCE_S, eventually

_SERVER = """import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    asked = client.makefile("rb").readline()
    client.sendall(b"you said " + asked)
    client.close()
"""


@pytest.fixture
async def port(alice: SshClient, job: str) -> AsyncIterator[int]:
    """A port at which a program in the job answers."""
    process = await alice.start("box@gw", f"exec {sys.executable} -uc '{_SERVER}'")
    assert process.stdout is not None
    yield int(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
    process.kill()
    await process.wait()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"hello\n")
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    await writer.wait_closed()
    return answer


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async def attempt() -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return None

    found = await eventually(attempt)
    assert found is not None
    return found


async def through_socks(proxy: int, host: bytes, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """A connection through a SOCKS5 proxy; None if the proxy's other end refuses it."""
    reader, writer = await connected(proxy)
    writer.write(b"\x05\x01\x00")
    assert await reader.readexactly(2) == b"\x05\x00"
    writer.write(b"\x05\x01\x00\x03" + bytes([len(host)]) + host + port.to_bytes(2, "big"))
    answer = await asyncio.wait_for(reader.read(10), PATIENCE_S)
    if answer[1:2] == b"\0":
        return reader, writer
    writer.close()
    await writer.wait_closed()
    return None


async def test_a_port_of_the_job_is_forwarded(alice: SshClient, port: int) -> None:
    local = own_port()
    process = await alice.start("-N", "-L", f"{local}:localhost:{port}", "box@gw")
    assert await ask(*await connected(local)) == b"you said hello\n"
    answers = await asyncio.gather(*(connected(local) for _ in range(30)))
    assert await asyncio.gather(*(ask(*answer) for answer in answers)) == [b"you said hello\n"] * 30
    process.terminate()
    await process.wait()


async def test_ports_are_forwarded_dynamically_to_the_job_alone(alice: SshClient, port: int) -> None:
    proxy = own_port()
    process = await alice.start("-N", "-D", str(proxy), "box@gw")
    for host in (b"127.0.0.1", b"localhost"):
        opened = await through_socks(proxy, host, port)
        assert opened is not None
        assert await ask(*opened) == b"you said hello\n"
    assert await through_socks(proxy, b"example.org", 80) is None
    process.terminate()
    assert process.stderr is not None
    assert (
        "only ports of the job itself are forwarded (localhost), not example.org"
        in (await process.stderr.read()).decode()
    )


async def test_a_port_without_a_server_is_refused_in_words(alice: SshClient, job: str) -> None:
    ended = await alice.run("-W", f"localhost:{own_port()}", "box@gw")
    assert ended.code != 0
    assert "No process of" in ended.err


async def test_remote_forwarding_is_refused_in_words(alice: SshClient, job: str) -> None:
    ended = await alice.run("-R", "8099:localhost:8099", "box@gw", "echo on")
    assert ended.out == b"on\n"
    assert "remote port forwarding failed" in ended.err
    assert "Remote forwarding (-R) is refused" in ended.err


async def test_the_gateway_is_a_jump_host_to_itself(alice: SshClient, gateway: Gateway, job: str) -> None:
    assert (await alice.run("-J", "box@127.0.0.1", "box@127.0.0.1", "echo over")).out == b"over\n"
    config = (alice.folder / "config").read_text()
    (alice.folder / "config").write_text(f"Host box\n    HostName box\n    HostKeyAlias gw\n\n{config}")
    assert (await alice.run("-J", "alice@127.0.0.1", "anybody@box", "echo over")).out == b"over\n"


async def test_one_connection_serves_many_programs(alice: SshClient, gateway: Gateway, job: str) -> None:
    sharing = ["-o", f"ControlPath={alice.folder}/c", "-o", "ControlMaster=auto", "-o", "ControlPersist=60"]
    assert (await alice.run(*sharing, "box@gw", "echo first")).out == b"first\n"
    ended = await asyncio.gather(*(alice.run(*sharing, "box@gw", f"echo {n}; exit {n}") for n in range(8)))
    assert [(end.code, end.out) for end in ended] == [(n, f"{n}\n".encode()) for n in range(8)]
    assert (await alice.run(*sharing, "-O", "exit", "box@gw")).code == 0
