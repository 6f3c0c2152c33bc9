"""The API service in a process of its own.

`python -m benchmarks.measuring.api_process DATABASE_URL HOME` prints the base URL and a token; serves until SIGTERM.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from api_service.app import create_app
from api_service.server import serve
from reservation_core.domain.statuses import Role
from reservation_core.runtime.processes.logs import configure
from reservation_core.runtime.processes.shutdown import stop_on_signals
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime, open_runtime


async def _durable(url: str, home: Path) -> None:
    settings = ApiSettings(home=home, local_gpus="h100:1", listen="127.0.0.1:0")
    configure(settings)
    async with open_runtime(settings, url, application="bench-api") as runtime:
        token = await _token(runtime)
        await serve(
            create_app(runtime, settings),
            settings.listen,
            stop=stop_on_signals(),
            ready=lambda address: print(address, token, flush=True),
        )


async def _token(runtime: Runtime) -> str:
    secret = runtime.ids.new_secret()
    async with runtime.uow() as uow:
        user = await uow.identities.user("bench") or await uow.identities.create_user(
            "bench", Role.ADMIN, runtime.clock.now()
        )
        await uow.identities.create_token(
            runtime.ids.new_id("tok"), user.id, None, runtime.ids.digest(secret), None, runtime.clock.now()
        )
    return secret


@contextmanager
def api_process(url: str, home: Path) -> Iterator[tuple[str, str]]:
    """Run one; its base URL and a token."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.measuring.api_process", url, str(home)],
        stdout=subprocess.PIPE,
        # All open pages of a measurement are one person's.
        env={**os.environ, "GPU_DEV_LOG_LEVEL": "WARNING", "GPU_DEV_WEB__STREAMS_PER_USER": "10000"},
    )
    try:
        assert process.stdout is not None
        address, token = process.stdout.readline().decode().split()
        yield address, token
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


if __name__ == "__main__":
    database_url, home_folder = sys.argv[1:]
    uvloop.run(_durable(database_url, Path(home_folder)))
