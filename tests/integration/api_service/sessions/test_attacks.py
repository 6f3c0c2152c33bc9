"""Clients that leave at bad moments, read nothing, or try to get in where they may not."""

import asyncio
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from api_service.sessions import streaming
from reservation_core.runtime.http.bounded_websocket import OPTIONS
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime
from tests.database.sql import sql
from tests.integration.api_service.callers import People
from tests.integration.api_service.served import Served, serving
from tests.integration.api_service.sessions.conftest import SUBPROTOCOL, Enter, results
from tests.programs.ports import own_port
from tests.waiting import eventually


@pytest.mark.parametrize("way", ["exec", "forward/80"])
async def test_a_token_that_reads_enters_nothing_by_an_odd_address(
    enter: Enter, job: str, runtime: Runtime, people: People, way: str
) -> None:
    async with runtime.uow() as uow:
        await sql(uow, "UPDATE tokens SET scopes = '{read}'")
    for ending in ("", "%0A", "%0a%0a", "/"):
        with pytest.raises(InvalidStatus) as refused:
            async with enter(job, way + ending):
                pass
        assert refused.value.response.status_code in (403, 404), ending


async def test_a_client_that_leaves_while_its_program_takes_no_input_is_noticed(
    runtime: Runtime, settings: ApiSettings, job: str, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIONS, "ws_ping_interval", 0.1)
    async with serving(runtime, settings) as served:
        connections = served.app.state.services.connections
        script = "echo ready; exec sleep 600"
        address = f"{served.base_url.replace('http', 'ws')}/v1/jobs/{job}/exec?"
        headers = {"Authorization": f"Bearer {people.secrets['alice']}"}
        query = urlencode({"command": ["sh", "-c", script]}, doseq=True)
        protocols = [Subprotocol(SUBPROTOCOL)]
        async with connect(address + query, additional_headers=headers, subprotocols=protocols, proxy=None) as socket:
            assert await socket.recv() == b"\1ready\n"
            for _ in range(16):
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await socket.send(b"\0" + bytes(500_000))
            socket.transport.abort()
        await eventually(lambda: not any("600" in words for words in _running_for(job)))
        await eventually(lambda: not connections.open)


def _running_for(job: str) -> list[list[str]]:
    """Programs that run in a job's folder, or below it."""
    return [
        process.info["cmdline"]
        for process in psutil.process_iter(["cwd", "cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and f"/{job}" in (process.info["cwd"] or "")
    ]


@pytest.mark.parametrize("query", [{"tty": "true", "command": "sh"}, {"command": ["sleep", "600"]}])
async def test_a_client_that_leaves_as_it_enters_leaves_nothing_behind(
    job: str, enter: Enter, served: Served, people: People, query: dict[str, object]
) -> None:
    connections = served.app.state.services.connections
    host, port = served.base_url.removeprefix("http://").split(":")
    head = (
        f"GET /v1/jobs/{job}/exec?{urlencode(query, doseq=True)} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\nAuthorization: Bearer {people.secrets['alice']}\r\n\r\n"
    )
    for delay in (0.0, 0.005, 0.01, 0.02, 0.03, 0.05):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode())
        await writer.drain()
        await asyncio.sleep(delay)
        writer.transport.abort()
    async with enter(job, "exec", command=["true"]) as socket:
        assert (await results(socket))[2] == 0
    await eventually(lambda: not connections.open)
    if "tty" not in query:  # a terminal may be kept
        await eventually(lambda: not any("600" in words for words in _running_for(job)))


async def test_a_client_that_reads_nothing_ends_with_its_right(
    enter: Enter, job: str, runtime: Runtime, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_LAST_WORDS_S", 0.2)
    connections = served.app.state.services.connections
    async with enter(job, "exec", command=["cat", "/dev/zero"], tty="true") as socket:
        await socket.recv()
        socket.transport.pause_reading()
        await asyncio.sleep(1)
        async with runtime.uow() as uow:
            await sql(uow, "UPDATE users SET disabled_at = now()")
        await connections.refresh()
        await eventually(lambda: not connections.open)
        socket.transport.abort()


async def test_an_upload_goes_on_when_the_port_has_said_all(enter: Enter, job: str, tmp_path: Path) -> None:
    port, got = own_port(), tmp_path / "got"
    script = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); c, _ = s.accept();"
        "c.sendall(b'hello'); c.shutdown(socket.SHUT_WR); n = 0\n"
        "while d := c.recv(65536): n += len(d)\n"
        "open(sys.argv[2], 'w').write(str(n))"
    )
    async with enter(job, "exec", command=[sys.executable, "-c", script, str(port), str(got)]):

        async def opened() -> bool:
            try:
                async with enter(job, f"forward/{port}") as socket:
                    assert [await socket.recv(), await socket.recv()] == [b"hello", b""]
                    for _ in range(20):
                        await socket.send(bytes(100_000))
                    await socket.send(b"")
                    await socket.wait_closed()
                    assert socket.close_code == 1000
            except InvalidStatus:
                return False
            return True

        await eventually(opened)
        await eventually(lambda: got.exists() and got.read_text() == "2000000")


async def test_a_server_that_stops_keeps_terminals(
    runtime: Runtime, settings: ApiSettings, enter: Enter, job: str, served: Served
) -> None:
    async with enter(job, "exec", command=["sh"], tty="true") as socket:
        await socket.send(b"\0kept=yes; echo is-$kept\n")
        seen = b""
        while b"is-yes" not in seen:
            seen += await socket.recv()  # type: ignore[operator]
        served.app.state.services.connections.stop()
        with suppress(ConnectionClosed):
            async for _ in socket:
                pass
        assert socket.close_code == 1012
    async with enter(job, "exec", attach="true") as again:
        await again.send(b"\0echo again-$kept; exit 3\n")
        output, _, code = await results(again)
        assert (b"again-yes" in output, code) == (True, 3)


async def test_a_right_that_is_withdrawn_hangs_a_terminal_up(
    enter: Enter, job: str, runtime: Runtime, served: Served, tmp_path: Path
) -> None:
    hung_up = tmp_path / "hung-up"
    script = f"trap 'echo >{hung_up}; exit' HUP; echo ready; while :; do sleep 0.05; done"
    async with enter(job, "exec", command=["sh", "-c", script], tty="true") as socket:
        while b"ready" not in await socket.recv():  # type: ignore[operator]
            pass
        async with runtime.uow() as uow:
            await sql(uow, "UPDATE users SET disabled_at = now()")
        await served.app.state.services.connections.refresh()
        assert "your access was withdrawn" in str((await results(socket))[2])
        await socket.wait_closed()
        assert socket.close_code == 1008
    await eventually(hung_up.exists)


async def test_a_session_does_not_end_because_its_server_was_killed(job: str, runtime: Runtime, people: People) -> None:
    now = runtime.clock.now()
    async with runtime.uow() as uow:
        await sql(
            uow,
            """WITH old AS (
                   UPDATE reservations SET inactivity = interval '5 minutes', started_at = :began WHERE id = :job
               )
               INSERT INTO connections (reservation_id, user_id, way, opened_at, last_byte_at, refreshed_at)
               VALUES (:job, :user, 'ssh', :began, :began, :seen)""",
            job=job, user=people.principals["alice"].user_id, began=now - timedelta(hours=2),
            seen=now - timedelta(seconds=90),
        )  # fmt: skip
        assert await uow.connections.left_alone(now, 10) == []
        assert await uow.connections.left_alone(now + timedelta(minutes=4), 10) == [job]


async def test_ones_own_job_goes_before_one_that_is_shared_under_its_name(
    enter: Enter, job: str, runtime: Runtime, people: People
) -> None:
    async with runtime.uow() as uow:
        await sql(
            uow,
            """INSERT INTO reservations (id, kind, user_id, name, status, reason_code, reason, gpus, nodes, duration,
                   priority, workload, created_at, changed_at, attempt, started_at, ends_at)
               SELECT 'job-trap', kind, :bob, name, status, reason_code, reason, gpus, nodes, duration, priority,
                   workload, created_at, changed_at, attempt, started_at, ends_at FROM reservations""",
            bob=people.principals["bob"].user_id,
        )  # fmt: skip
        await sql(
            uow,
            "INSERT INTO job_shares (reservation_id, user_id, created_at) VALUES ('job-trap', :alice, now())",
            alice=people.principals["alice"].user_id,
        )  # fmt: skip
    async with enter("box", "exec", command=["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]) as socket:
        assert await results(socket) == (b"1\n", b"", 0)
