"""What would become of a job, and what becomes of one that was just submitted, by the same question to the server."""

from typing import NoReturn

import typer
from msgspec import to_builtins

from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import local_sentence
from gpu_dev.display.output import Format
from gpu_dev.display.verdicts import exit_code_of_verdict, show_verdict, wait_words
from gpu_dev.errors import ClientError
from gpu_dev.inputs.requests import make_request
from gpu_dev.terminal import put, say
from gpu_dev.wire.jobs import Job, JobSubmit
from gpu_dev.wire.policy import ExplainRequest


def rehearse(client: GpuDevClient, request: JobSubmit, output: Format) -> NoReturn:
    """Say what would become of a job, and end as submitting it would."""
    answer = client.policy.explain(_question(request))
    put(show_verdict(answer, output))
    raise typer.Exit(exit_code_of_verdict(answer))


def say_wait(client: GpuDevClient, request: JobSubmit, job: Job) -> None:
    """Say what a submitted job waits for. The answer to submitting it can't know: the planner has not looked yet."""
    if job.after:
        say(local_sentence(job.reason.detail))
        return
    try:
        words = wait_words(job, client.policy.explain(_question(request, instead_of=job.id)))
    except ClientError:
        return  # it has started, the token may not ask, or the server is too old or gone: the job is submitted
    if words is not None:
        say(words)


def _question(request: JobSubmit, **more: str) -> ExplainRequest:
    known = set(ExplainRequest.__struct_fields__)
    fields = {name: value for name, value in to_builtins(request).items() if value is not None and name in known}
    return make_request(ExplainRequest, fields | more)
