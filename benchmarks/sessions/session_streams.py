"""Streams of sessions beside a plain WebSocket and socat: keystrokes, bulk through a port, memory. Needs socat."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import against
from benchmarks.start_up import standalone
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres

SESSIONS = 50
KEYSTROKES = 40
IDLE = 100
BULK_BYTES = 256 * 2**20
ROUNDS = 3
_PATIENCE_S = 60.0
_SOURCE = f"socat TCP-LISTEN:{{port}},fork,reuseaddr,bind=127.0.0.1 SYSTEM:'head -c {BULK_BYTES} /dev/zero'"


def measure() -> list[Figure]:
    """Open sessions on a standalone system, and the same number of WebSockets of a server that only echoes."""
    if shutil.which("socat") is None:
        raise FileNotFoundError("this benchmark needs socat")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        os.environ["GPU_DEV_SSH__LISTEN"] = ""
        try:
            with standalone(home) as (process, environment), _echo_server() as echo:
                listen = environment["GPU_DEV_LISTEN"]
                headers = {"Authorization": f"Bearer {(home / 'admin-token').read_text().strip()}"}
                job = _start_job(listen, headers)
                address = f"ws://{listen}/v1/jobs/{job}"
                return asyncio.run(_measured(process.pid, address, headers, echo))
        finally:
            EmbeddedPostgres(home).destroy()


async def _measured(pid: int, address: str, headers: dict[str, str], echo: str) -> list[Figure]:
    ours, theirs = [], []
    for _ in range(ROUNDS):
        async with _opened(f"{address}/exec?command=cat", headers) as sockets:
            ours.append(await _keystrokes(sockets, b"\0"))
        async with _opened(echo, {}) as sockets:
            theirs.append(await _keystrokes(sockets, b""))
    ports = 23_001, 23_002
    async with _opened(f"{address}/exec?{_source(ports[0])}", headers, 1):
        through = [await _forwarded(f"{address}/forward/{ports[0]}", headers) for _ in range(ROUNDS)]
    with subprocess.Popen(["sh", "-c", _SOURCE.format(port=ports[1])]) as source:
        relay = ["socat", "TCP-LISTEN:23003,fork,reuseaddr,bind=127.0.0.1", f"TCP:127.0.0.1:{ports[1]}"]
        with subprocess.Popen(relay) as relaying:
            direct = [await _relayed(23_003) for _ in range(ROUNDS)]
            relaying.terminate()
        source.terminate()
    return [
        against("keystroke echo over exec, p99 of 50 sessions", ours, theirs, 3, unit=" ms", of="a bare WebSocket"),
        against("bulk through forward, time", through, direct, 2, unit=" s", of="socat"),
        Figure(
            "memory of an idle session at the API", " KiB", [await _idle(pid, address, headers)], 200, at_least=False
        ),
    ]


async def _keystrokes(sockets: list[ClientConnection], prefix: bytes) -> float:
    """The 99th percentile of all echoes, in ms; each session types some 20 characters a second."""
    times: list[float] = []

    async def type_in(socket: ClientConnection, late: float) -> None:
        await asyncio.sleep(late)
        for _ in range(KEYSTROKES):
            began = time.perf_counter()
            await socket.send(prefix + b"x")
            await socket.recv()
            times.append(time.perf_counter() - began)
            await asyncio.sleep(0.05)

    await asyncio.gather(*(type_in(socket, number / 1000) for number, socket in enumerate(sockets)))
    return sorted(times)[int(len(times) * 0.99)] * 1000


async def _forwarded(address: str, headers: dict[str, str]) -> float:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        began = time.perf_counter()
        received = 0
        with contextlib.suppress(Exception):
            async with connect(
                address, additional_headers=headers, proxy=None, max_size=None, compression=None
            ) as socket:
                while data := await socket.recv():
                    received += len(data)
        if received == BULK_BYTES:
            return time.perf_counter() - began
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(0.1)


async def _relayed(port: int) -> float:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        began = time.perf_counter()
        received = 0
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while data := await reader.read(65536):
                received += len(data)
            writer.close()
        if received == BULK_BYTES:
            return time.perf_counter() - began
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(0.1)


async def _idle(pid: int, address: str, headers: dict[str, str]) -> float:
    async with _opened(f"{address}/exec?command=cat", headers, 10):  # what is loaded once
        before = psutil.Process(pid).memory_full_info().uss
        async with _opened(f"{address}/exec?command=sh&tty=true", headers, IDLE):
            await asyncio.sleep(3)
            return (psutil.Process(pid).memory_full_info().uss - before) / IDLE / 1024


@asynccontextmanager
async def _opened(
    address: str, headers: dict[str, str], number: int = SESSIONS
) -> AsyncIterator[list[ClientConnection]]:
    protocols = [Subprotocol("v5.channel.k8s.io")] if headers else None
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                connect(address, additional_headers=headers, subprotocols=protocols, proxy=None, compression=None)
            )
            for _ in range(number)
        ]


def _source(port: int) -> str:
    return str(httpx.QueryParams([("command", "sh"), ("command", "-c"), ("command", _SOURCE.format(port=port))]))


def _start_job(listen: str, headers: dict[str, str]) -> str:
    with httpx.Client(base_url=f"http://{listen}", headers=headers, trust_env=False) as client:
        answer = client.post("/v1/jobs", json={"gpus": 1, "duration": 600, "workload": {}}).raise_for_status()
        job: str = answer.json()["id"]
        deadline = time.monotonic() + _PATIENCE_S
        while client.get(f"/v1/jobs/{job}").json()["status"] != "running":
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.1)
    return job


async def _echo(socket: WebSocket) -> None:
    await socket.accept()
    with contextlib.suppress(Exception):
        while True:
            await socket.send_bytes(await socket.receive_bytes())


@contextmanager
def _echo_server() -> Iterator[str]:
    """The same framework, and nothing behind it."""
    command = [sys.executable, "-m", "benchmarks.sessions.session_streams"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


def serve_echo() -> None:
    """Print the address, then echo until the end."""
    config = uvicorn.Config(
        Starlette(routes=[WebSocketRoute("/", _echo)]), port=0, ws="websockets-sansio", log_level="error",
        ws_per_message_deflate=False, loop="uvloop",
    )  # fmt: skip
    opened = config.bind_socket()
    print(f"ws://127.0.0.1:{opened.getsockname()[1]}/", flush=True)
    uvicorn.Server(config).run(sockets=[opened])


if __name__ == "__main__":
    serve_echo()
