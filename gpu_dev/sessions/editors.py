"""Editors and notebooks on a session: what `dev --ide` opens."""

import asyncio
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from enum import StrEnum

from gpu_dev.calls.session_calls import SessionCalls
from gpu_dev.errors import ClientError
from gpu_dev.sessions.browsers import open_in_browser
from gpu_dev.sessions.conversation import Ends, converse
from gpu_dev.sessions.forwarding import HOST, Forward, listening
from gpu_dev.sessions.ssh.ssh_files import host_of
from gpu_dev.terminal import put, say

_PAUSE_S = 0.5
_PORTS = range(20_000, 30_000)
_NOTEBOOK = (
    "command -v jupyter >/dev/null || { echo 'The job has no jupyter: pip install jupyterlab' >&2; exit 127; }; "
    "read -r JUPYTER_TOKEN; export JUPYTER_TOKEN; "
    'exec jupyter lab --no-browser --ip=127.0.0.1 --port="$1" --ServerApp.port_retries=0 --allow-root'
)


class Ide(StrEnum):
    """An editor or a notebook."""

    VSCODE = "vscode"
    CURSOR = "cursor"
    JUPYTER = "jupyter"


_PROGRAMS = {Ide.VSCODE: "code", Ide.CURSOR: "cursor"}


def open_editor(ide: Ide, job_id: str) -> None:
    """Start an editor of this machine on a job by OpenSSH, or say how."""
    command = [_PROGRAMS[ide], "--remote", f"ssh-remote+{host_of(job_id)}"]
    program = shutil.which(command[0])
    if program is None:
        say(f"There is no `{command[0]}` here. Where it is, type: {shlex.join(command)}")
        return
    subprocess.Popen(
        [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    say(f"{ide.value} opens {host_of(job_id)}.")


async def run_notebook(calls: SessionCalls, job_id: str) -> int:
    """Run JupyterLab in a job, and lead a local port to it, until it or this command ends; returns its exit code."""
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
