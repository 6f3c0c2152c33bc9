"""The peer of the API service: a POST of the same framework that does nothing, in a process of its own.

`python -m benchmarks.measuring.do_nothing` prints the base URL and serves until SIGTERM.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import uvicorn
import uvloop
from fastapi import FastAPI

SERVER = "a server that does nothing"
POST = "a do-nothing POST"


@dataclass(frozen=True, slots=True)
class BareServer:
    """Where it answers, and what it takes: seconds until it did, MB of memory (proportional set size), its pid."""

    address: str
    start_s: float
    memory_mb: float
    pid: int


@contextmanager
def do_nothing() -> Iterator[BareServer]:
    """Run one."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.measuring.do_nothing"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        start_s = time.monotonic() - began
        memory_mb = psutil.Process(process.pid).memory_full_info().pss / 1e6
        yield BareServer(address, start_s, memory_mb, process.pid)
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


async def _serve() -> None:
    app = FastAPI()

    @app.post("/v1/jobs", status_code=202)
    async def nothing() -> dict[str, str]:
        return {"status": "queued"}

    config = uvicorn.Config(app, port=0, http="httptools", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)
    await serving


if __name__ == "__main__":
    uvloop.run(_serve())
