"""Send the stdin of `gpu-dev run` to the named pipe that its job reads."""

import asyncio
import threading

from gpu_dev.client import GpuDevClient
from gpu_dev.errors import ClientError, UnreachableError
from gpu_dev.sessions.descriptors import read_ready, run_polling
from gpu_dev.sessions.remote_program import BrokenOffError, RemoteProgram
from gpu_dev.sessions.run_input import PLACE
from gpu_dev.terminal import say

_FILL = f'{PLACE}while [ ! -p "$d/in" ]; do sleep 0.1; done; exec 3>"$d/in"; rm -rf "$d"; exec cat >&3'
_TRIES = 60
_PAUSE_S = 1.0


def start_feeding(client: GpuDevClient, job_id: str) -> None:
    """Send stdin to a running job beside everything else; a job whose input breaks off is cancelled."""
    threading.Thread(target=_feed, args=(client, job_id), daemon=True).start()


def _feed(client: GpuDevClient, job_id: str) -> None:
    try:
        run_polling(_pass(client, job_id))
    except (BrokenOffError, ClientError) as error:
        _cancel_if_cut(client, job_id, str(error))


def _cancel_if_cut(client: GpuDevClient, job_id: str, why: str) -> None:
    """Cancel a job that takes a broken connection for the end of its input; one that has ended by itself is left."""
    tries_left = _TRIES
    while True:
        try:
            run_polling(_enter(client, job_id))
            say(f"The input of {job_id} broke off, so it is cancelled: {why}")
            client.cancel(job_id)
        except UnreachableError:
            tries_left -= 1
            if tries_left:
                client.pause(_PAUSE_S)
                continue
            say(f"The input of {job_id} broke off: {why}. It may have been cut.")
        except ClientError:  # it has ended
            if tries_left < _TRIES:
                say(f"The input of {job_id} may have been cut: {why}")
        return


async def _enter(client: GpuDevClient, job_id: str) -> None:
    """Raises ClientError where the job can't be entered any more."""
    await (await client.sessions.start(job_id, ["true"])).close()


async def _pass(client: GpuDevClient, job_id: str) -> None:
    program = await client.sessions.start(job_id, ["sh", "-c", _FILL])
    sending = asyncio.create_task(_send(program))
    try:
        async for _ in program.output():  # until it has passed everything on, or the command reads no more
            pass
    finally:
        sending.cancel()


async def _send(program: RemoteProgram) -> None:
    while data := await read_ready(0):
        await program.write(data)
    await program.close_input()
