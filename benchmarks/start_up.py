"""The second start of the whole standalone system until /readyz is 200, and its memory at rest."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from benchmarks.measuring.do_nothing import SERVER, do_nothing
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import against
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres

ROUNDS = 3
REST_S = 5.0
_PATIENCE_S = 60.0


def measure() -> list[Figure]:
    """A first start makes the home; then so many more."""
    starts: list[float] = []
    memory: list[float] = []
    bare_starts: list[float] = []
    bare_memory: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        _one(Path(home), rest_s=0)
        try:
            for _ in range(ROUNDS):
                with do_nothing() as bare:
                    bare_starts.append(bare.start_s)
                    bare_memory.append(bare.memory_mb)
                seconds, megabytes = _one(Path(home), rest_s=REST_S)
                starts.append(seconds)
                memory.append(megabytes)
        finally:
            EmbeddedPostgres(Path(home)).destroy()  # its files may lie elsewhere
    return [
        against("start-up to /readyz 200, second run", starts, bare_starts, 12, unit=" s", of=SERVER),
        against("memory at rest, all processes", memory, bare_memory, 10, unit=" MB (PSS)", of=SERVER),
    ]


def _one(home: Path, *, rest_s: float) -> tuple[float, float]:
    """One life: seconds until ready, and MB of all its processes after a rest."""
    started = time.monotonic()
    with standalone(home) as (process, _):
        seconds = time.monotonic() - started
        time.sleep(rest_s)
        return seconds, _pss(process.pid, home) / 1e6


@contextmanager
def standalone(home: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A system that is ready, and the environment of its commands."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {**os.environ, "GPU_DEV_HOME": str(home), "GPU_DEV_LISTEN": listen, "GPU_DEV_LOCAL_GPUS": "h100:4"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed system has its bytecode
    process = subprocess.Popen(
        [sys.executable, "-m", "standalone"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_ready(f"http://{listen}/readyz", process)
        yield process, environment
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_PATIENCE_S)


def _wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url, timeout=1).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.01)
    raise RuntimeError(f"the system did not become ready (exit code {process.poll()})")


def _pss(pid: int, home: Path) -> int:
    """Bytes of the process, its children, and the database server's processes, shared pages counted once."""
    everybody = {pid}
    root = psutil.Process(pid)
    everybody.update(child.pid for child in root.children(recursive=True))
    postmaster = (home / "postgres" / "data" / "postmaster.pid").read_text().split("\n", 1)[0]
    server = psutil.Process(int(postmaster))
    everybody.update([server.pid, *(child.pid for child in server.children(recursive=True))])
    total = 0
    for child_pid in everybody:
        try:
            total += int(psutil.Process(child_pid).memory_full_info().pss)
        except psutil.NoSuchProcess:
            continue
    return total
