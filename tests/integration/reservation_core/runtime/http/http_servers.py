"""Every HTTP server of the product as a process of its own, and clients that speak to it byte by byte."""

import json
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.kubernetes.api_server import started_api_server
from tests.programs.extender_process import extender_process
from tests.programs.prepared_processes import started
from tests.programs.webhook_process import new_pair, trusting, webhook_process, write_pair
from tests.waiting import PATIENCE_S, eventually_sync

NAMES = ("api", "webhook", "extender", "health")


@dataclass(frozen=True)
class HttpServer:
    """A server that listens. `posting` is the head of a POST whose body the application reads, but for its framing."""

    name: str
    url: str
    pid: int
    alive: str
    posting: bytes
    tls: ssl.SSLContext | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", int(self.url.rpartition(":")[2])

    def tcp(self) -> socket.socket:
        """A connection of which the server knows nothing yet, not even its TLS."""
        return socket.create_connection(self.address, timeout=PATIENCE_S)

    def connect(self) -> socket.socket:
        """A connection that requests can be sent on."""
        plain = self.tcp()
        return plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def get(self, path: str | None = None) -> httpx.Response:
        """A request on a connection of its own."""
        with httpx.Client(verify=self.tls or False, trust_env=False, timeout=PATIENCE_S) as client:
            return client.get(f"{self.url}{path or self.alive}")

    def memory(self) -> int:
        """The process's resident bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def descriptors(self) -> int:
        """How many files and sockets the process has open."""
        return int(psutil.Process(self.pid).num_fds())

    def refused(self, reason: str) -> float:
        """How often it has refused something for a reason, by its metrics."""
        wanted = f'gpu_dev_http_refused_total{{reason="{reason}"}}'
        lines = self.get("/metrics").text.splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(wanted))


def everything(connection: socket.socket) -> bytes:
    """What the server sends until it closes."""
    received = b""
    with suppress(ConnectionError, ssl.SSLEOFError):
        while data := connection.recv(2**16):
            received += data
    return received


def status(received: bytes) -> int | None:
    """The status of the first response."""
    return int(received.split(b" ", 2)[1]) if received.startswith(b"HTTP/1.1 ") else None


@contextmanager
def http_server(name: str, folder: Path, database_url: str, **settings: str) -> Iterator[HttpServer]:
    """One of NAMES, until the block's end."""
    match name:
        case "api":
            posting = b"POST /v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            # How often one address may try to sign in has tests of its own.
            variables = {"GPU_DEV_LISTEN": "127.0.0.1:0", "GPU_DEV_AUTH__ADDRESS_BURST": "10000"} | settings
            with _program("api_service", "api_listening", folder, database_url, **variables) as (url, pid):
                yield HttpServer(name, url, pid, "/healthz", posting)
        case "health":
            posting = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
            variables = {"GPU_DEV_HEALTH_LISTEN": "127.0.0.1:0"} | settings
            with _program("reservation_processor", "health_listening", folder, database_url, **variables) as (url, pid):
                yield HttpServer(name, url, pid, "/healthz", posting)
        case "webhook":
            pair = new_pair()
            write_pair(pair, folder)
            posting = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            with webhook_process(folder, **{"GPU_DEV_WEBHOOK__BODY_S": "300"} | settings) as webhook:
                yield HttpServer(name, webhook.url, webhook.process.pid, "/health", posting, trusting(pair))
        case "extender":
            posting = b"POST /scheduler/predicates HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            variables = {"GPU_DEV_ADMISSION__BODY_S": "300"} | settings
            with (
                started_api_server(folder) as server,
                extender_process(folder / "extender.log", server.kubeconfig, **variables) as extender,
            ):
                yield HttpServer(name, extender.url, extender.process.pid, "/health", posting)
        case _:
            raise ValueError(name)


@contextmanager
def _program(
    module: str, listening: str, folder: Path, database_url: str, **settings: str
) -> Iterator[tuple[str, int]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
    environment = {"GPU_DEV_DATABASE_URL": database_url, "GPU_DEV_HOME": str(folder), "GPU_DEV_LOCAL_GPUS": "h100:4"}
    log = folder / f"{module}.log"
    process = started([module], kept | environment | settings, log, forked=True)

    def address() -> str | None:
        if process.poll() is not None:
            raise RuntimeError(f"{module} ended. It said: {log.read_text()[-3000:]}")
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line[-1] == "}"]
        return next((str(line["address"]) for line in lines if line["event"] == listening), None)

    try:
        yield str(eventually_sync(address)), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
