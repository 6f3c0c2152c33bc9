"""`run --tty`: a command in a terminal on GPUs of its own, which are given back when it ends."""

from functools import partial

from msgspec.structs import replace

from gpu_dev.client import GpuDevClient
from gpu_dev.errors import UsageError
from gpu_dev.sessions.descriptors import run_polling
from gpu_dev.sessions.endings import exit_code_after
from gpu_dev.sessions.terminals.terminal_session import use_terminal
from gpu_dev.sessions.waiting import submit_session, wait_for_start
from gpu_dev.terminal import say
from gpu_dev.wire.jobs import JobSubmit


def run_in_terminal(client: GpuDevClient, request: JobSubmit) -> int:
    """Submit a session, run the request's command in its terminal, end the session, and return the exit code.

    Ctrl-C while waiting cancels. A command that is left by `~.` goes on. Raises ClientError.
    """
    if (request.nodes or 1) > 1:
        raise UsageError("A terminal is on one node. Use `gpu-dev dev --nodes` and `gpu-dev shell --rank`.")

    def cancel(job_id: str) -> None:
        client.cancel(job_id)
        say(f"{job_id} is cancelled. Its GPUs become free when it has ended.")

    session = replace(request, workload=replace(request.workload, command=[]))
    job = wait_for_start(client, submit_session(client, session, cancel), cancel)
    conversation = use_terminal(client.sessions, job.id, request.workload.command or ())
    code = exit_code_after(client, partial(run_polling, conversation), job.id, f"gpu-dev attach {job.id}")
    cancel(job.id)
    return code
