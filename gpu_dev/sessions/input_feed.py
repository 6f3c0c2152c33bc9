"""Send the stdin of `gpu-dev run` to the named pipe that its job reads."""

import asyncio
import threading

from gpu_dev.client import GpuDevClient
from gpu_dev.errors import ClientError
from gpu_dev.following import has_ended
from gpu_dev.sessions.descriptors import read_ready, run_polling
from gpu_dev.sessions.remote_program import BrokenOffError, RemoteProgram
from gpu_dev.sessions.run_input import PLACE
from gpu_dev.terminal import say

_FILL = f'{PLACE}while [ ! -p "$d/in" ]; do sleep 0.1; done; exec 3>"$d/in"; rm -rf "$d"; exec cat >&3'


def start_feeding(client: GpuDevClient, job_id: str) -> None:
    """Send stdin to a running job beside everything else; a job whose input breaks off is cancelled."""
    threading.Thread(target=_feed, args=(client, job_id), daemon=True).start()


def _feed(client: GpuDevClient, job_id: str) -> None:
    try:
        run_polling(_pass(client, job_id))
    except (BrokenOffError, ClientError) as error:
        try:
            if not has_ended(client.job(job_id)):
                say(f"The input of {job_id} broke off, so it is cancelled: {error}")
                client.cancel(job_id)
        except ClientError as failure:
            say(f"{job_id} could not be cancelled: {failure.detail}")


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
