"""Clients without a token that open connections and say nothing: the API answers on, and the planner starts jobs.

1,100 of them once took every descriptor of the process: neither the API nor the planner could do anything any more.
"""

import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from reservation_core.runtime.open_files import raise_open_files
from tests.e2e.systems.system_process import SystemProcess, ended
from tests.programs.prepared_processes import PreparedProcess
from tests.waiting import PATIENCE_S, eventually_sync

HALF_OPEN = 1_200
SOFT, HARD = 200, 512


class NarrowSystem(SystemProcess):
    """A system that may open few files: fewer than there are connections to it."""

    def launch(self) -> "PreparedProcess | subprocess.Popen[bytes]":
        """Before it has done anything."""
        process = super().launch()
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (SOFT, HARD))
        return process


@pytest.fixture
def system(database_url: str, tmp_path: Path) -> Iterator[NarrowSystem]:
    system = NarrowSystem(tmp_path / "home", GPU_DEV_DATABASE_URL=database_url)
    yield system
    system.clear()


def test_half_open_connections_stop_neither_the_api_nor_the_planner(system: NarrowSystem) -> None:
    raise_open_files()
    with ExitStack() as opened:
        opened.enter_context(system.start()).close()
        host, _, port = system.url.removeprefix("http://").rpartition(":")
        for number in range(HALF_OPEN):
            connection = opened.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            connection.sendall((b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-")[number % 2])
        http = opened.enter_context(system.client())
        eventually_sync(lambda: _answers(system))
        job = eventually_sync(lambda: _submitted(system))
        assert ended(http, job)["status"] == "succeeded"
        assert http.get(f"/v1/jobs/{job}/logs").text == f"{SOFT}\n", "jobs start with the limit that the server had"
        assert http.get("/readyz").status_code == 200
    assert "Too many open files" not in system.log
    assert system.process.poll() is None
    assert system.end(signal.SIGTERM) == 0, system.log


def _answers(system: NarrowSystem) -> bool:
    with system.client() as http:
        return http.get("/healthz").status_code == 200


def _submitted(system: NarrowSystem) -> str:
    with system.client() as http:
        return system.submit(http, 1, "sh", "-c", "ulimit -n")
