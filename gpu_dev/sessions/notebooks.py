"""JupyterLab in a job, at a port of this machine."""

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial

from gpu_dev.calls.session_calls import SessionCalls
from gpu_dev.client import GpuDevClient
from gpu_dev.errors import ClientError
from gpu_dev.sessions.browsers import open_in_browser
from gpu_dev.sessions.conversation import Ends, converse
from gpu_dev.sessions.descriptors import run_polling
from gpu_dev.sessions.endings import exit_code_after
from gpu_dev.sessions.forwarding import HOST, Forward, listening
from gpu_dev.terminal import put

_PAUSE_S = 0.5
_PORTS = range(20_000, 30_000)
_NOTEBOOK = (
    "command -v jupyter >/dev/null || { echo 'The job has no jupyter: pip install jupyterlab' >&2; exit 127; }; "
    "read -r JUPYTER_TOKEN; export JUPYTER_TOKEN; "
    'exec jupyter lab --no-browser --ip=127.0.0.1 --port="$1" --ServerApp.port_retries=0 --allow-root'
)


def enter_notebook(client: GpuDevClient, job_id: str) -> int:
    """Run JupyterLab in a job until it or this command ends, and return its exit code."""
    notebook = partial(run_polling, _run_notebook(client.sessions, job_id))
    return exit_code_after(client, notebook, job_id, f"gpu-dev shell {job_id}", is_shell=True)


async def _run_notebook(calls: SessionCalls, job_id: str) -> int:
    port, token = secrets.choice(_PORTS), secrets.token_urlsafe(24)
    program = await calls.start(job_id, _notebook_command(port))
    await program.write(f"{token}\n".encode())
    async with listening(calls, job_id, [Forward(0, port)]) as [local]:
        address = f"http://{HOST}:{local.local}/lab?token={token}"
        put(f"{address}\n")
        opening = asyncio.create_task(_open_when_ready(calls, job_id, port, address))
        try:
            return await converse(program, Ends(stdin=None))
        finally:
            opening.cancel()


def _notebook_command(port: int) -> Sequence[str]:
    return ["sh", "-c", _NOTEBOOK, "sh", str(port)]


async def _open_when_ready(calls: SessionCalls, job_id: str, port: int, address: str) -> None:
    while True:
        try:
            connection = await calls.connect(job_id, port)
        except ClientError:  # it does not listen yet
            await asyncio.sleep(_PAUSE_S)
            continue
        await connection.close()
        open_in_browser(address)
        return
