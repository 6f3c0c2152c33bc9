"""`run` and `submit`: from one line to a job, and with `run` to its output and exit code."""

import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any, NoReturn, assert_never

import typer
from msgspec import UNSET

from gpu_dev.again import asked_again
from gpu_dev.client import GpuDevClient
from gpu_dev.commands.jobs.job_options import (
    After,
    Again,
    Array,
    Booking,
    Command,
    Cpus,
    Disk,
    DryRun,
    EndSignal,
    Env,
    Fetch,
    For,
    Gpus,
    GpuType,
    Image,
    Inactivity,
    JsonFile,
    Memory,
    MinRuntime,
    Name,
    Nodes,
    NoHome,
    Preemptible,
    Priority,
    Project,
    Requeue,
    Retries,
    Secret,
    Shm,
    Sync,
    TestOnly,
    Timeout,
    Tty,
    Wait,
    WorkingDir,
)
from gpu_dev.commands.jobs.rehearsals import rehearse, say_wait
from gpu_dev.display.output import Format, show_one
from gpu_dev.display.verdicts import show_start
from gpu_dev.display.views import JOB_DETAILS
from gpu_dev.errors import ExitCode, UsageError
from gpu_dev.following import exit_code_of, has_ended, has_output, has_started, say_use, wait_until, waiting_line
from gpu_dev.inputs.asking import Interrupted, ask_after_interrupt, can_ask, needed_duration, needed_gpus
from gpu_dev.inputs.durations import parse_duration
from gpu_dev.inputs.machine_zone import local_now
from gpu_dev.inputs.requests import end_fields, job_fields, make_request, read_submit
from gpu_dev.inputs.synced_folders import NO_FILES, SyncedFolder, code_with_files, read_synced
from gpu_dev.server.streams import ResumableLog
from gpu_dev.session import booking_id_of, client_for, whole_id
from gpu_dev.sessions.run_input import has_input, reading_input
from gpu_dev.sessions.waiting import say_home
from gpu_dev.terminal import put, say
from gpu_dev.wire.jobs import Job, JobSubmit
from reservation_core.domain.statuses import JobStatus

run_app = typer.Typer(add_completion=False)
submit_app = typer.Typer(add_completion=False)

# Options end where the command begins: `gpu-dev run --gpus 1 --for 1h python train.py --lr 0.1` needs no `--`.
_COMMAND_LAST = {"allow_interspersed_args": False}
_RUN_EXAMPLE = "gpu-dev run --gpus 1 --for 1h -- python train.py"
_SUBMIT_EXAMPLE = "gpu-dev submit --gpus 1 --for 1h -- python train.py"


@submit_app.command(context_settings=_COMMAND_LAST)
def submit(
    ctx: typer.Context,
    command: Command = None,
    gpus: Gpus = None,
    gpu_type: GpuType = None,
    duration: For = None,
    nodes: Nodes = None,
    name: Name = None,
    env: Env = None,
    secret: Secret = None,
    disk: Disk = None,
    no_home: NoHome = False,
    after: After = None,
    image: Image = None,
    working_dir: WorkingDir = None,
    priority: Priority = None,
    booking: Booking = None,
    project: Project = None,
    inactivity: Inactivity = None,
    retries: Retries = None,
    requeue: Requeue = False,
    sync: Sync = None,
    fetch: Fetch = None,
    array: Array = None,
    preemptible: Preemptible = False,
    min_runtime: MinRuntime = None,
    end_signal: EndSignal = None,
    cpus: Cpus = None,
    memory: Memory = None,
    shm: Shm = None,
    json_file: JsonFile = None,
    again: Again = None,
    wait: Wait = False,
    timeout: Timeout = None,
    dry_run: DryRun = False,
    test_only: TestOnly = False,
    output: Annotated[Format, typer.Option("--output", "-o", help="Output format.")] = Format.NAME,
) -> None:
    """Submit a job and print its id. Without a command the job is a session: enter it with `gpu-dev shell`."""
    if timeout is not None and not wait:
        raise UsageError("--timeout needs --wait.")
    _require_one_rehearsal(dry_run=dry_run, test_only=test_only)
    patience = None if timeout is None else parse_duration(timeout)
    fields = job_fields(
        command, gpu_type, nodes, name, env, image, working_dir, priority, booking, project, inactivity, secret, after,
        retries, requeue=requeue, array=array, cpus=cpus, memory=memory, shm=shm, disks=disk, no_home=no_home,
    )  # fmt: skip
    files = read_synced(sync, fetch)
    fields |= end_fields(preemptible=preemptible, min_runtime=min_runtime, end_signal=end_signal)
    request = _request(ctx, fields, gpus, duration, json_file, again, _SUBMIT_EXAMPLE)
    with client_for(ctx) as client:
        shown = Format.TABLE if output is Format.NAME else output
        _rehearse_if_asked(client, request, shown, dry_run=dry_run, test_only=test_only)
        job = client.submit(files.sent_with(client, request))
        if wait:
            raise typer.Exit(_wait_for(client, job, files, output, patience))
        put(show_one(job, JOB_DETAILS, output))
        say_wait(client, request, job)
        say_home(client, request, job)
        if not request.workload.command and job.array is None:
            say(f"Enter it: gpu-dev shell {job.id}")


def _wait_for(client: GpuDevClient, job: Job, files: SyncedFolder, output: Format, patience: timedelta | None) -> int:
    """Wait until a job has ended, show it, and bring its files back. Returns the exit code."""
    if output is Format.NAME:
        # Scripts get the id at once, whatever becomes of the waiting.
        put(f"{job.id}\n")
    job = wait_until(client, job, has_ended, timeout=patience)
    say_use(client, job)
    if output is not Format.NAME:
        put(show_one(job, JOB_DETAILS, output))
    brought = files.brought_back(client, job)
    if job.status is not JobStatus.SUCCEEDED:
        return ExitCode.TIMEOUT if job.status is JobStatus.EXPIRED else ExitCode.JOB_FAILED
    return code_with_files(ExitCode.OK, brought=brought)


@run_app.command(context_settings=_COMMAND_LAST)
def run(
    ctx: typer.Context,
    command: Command = None,
    gpus: Gpus = None,
    gpu_type: GpuType = None,
    duration: For = None,
    nodes: Nodes = None,
    name: Name = None,
    env: Env = None,
    secret: Secret = None,
    disk: Disk = None,
    after: After = None,
    image: Image = None,
    working_dir: WorkingDir = None,
    priority: Priority = None,
    booking: Booking = None,
    project: Project = None,
    retries: Retries = None,
    requeue: Requeue = False,
    sync: Sync = None,
    fetch: Fetch = None,
    preemptible: Preemptible = False,
    min_runtime: MinRuntime = None,
    end_signal: EndSignal = None,
    cpus: Cpus = None,
    memory: Memory = None,
    shm: Shm = None,
    json_file: JsonFile = None,
    again: Again = None,
    on_interrupt: Annotated[
        Interrupted | None,
        typer.Option(help="What Ctrl-C does to the job (default: ask; without a terminal: cancel)."),
    ] = None,
    tty: Tty = False,
    dry_run: DryRun = False,
    test_only: TestOnly = False,
) -> None:
    """Submit a job, follow its output, and end with its exit code.

    Progress goes to stderr; stdout has only the job's output.

    Ctrl-C asks whether to cancel, detach or go on; a second Ctrl-C detaches.

    Without a terminal, Ctrl-C and SIGTERM cancel the job.

    If stdin is a pipe or a file, the command reads it (the job's image needs `sh`); `</dev/null` prevents that.
    """
    _require_one_rehearsal(dry_run=dry_run, test_only=test_only)
    fields = job_fields(
        command, gpu_type, nodes, name, env, image, working_dir, priority, booking, project,
        secrets=secret, after=after, retries=retries, requeue=requeue,
        cpus=cpus, memory=memory, shm=shm, disks=disk,
    )  # fmt: skip
    files = read_synced(sync, fetch)
    fields |= end_fields(preemptible=preemptible, min_runtime=min_runtime, end_signal=end_signal)
    request = _request(ctx, fields, gpus, duration, json_file, again, _RUN_EXAMPLE)
    _require_command(request)
    with client_for(ctx) as client, terminable():
        _rehearse_if_asked(client, request, Format.TABLE, dry_run=dry_run, test_only=test_only)
        raise typer.Exit(_run(client, request, on_interrupt, files, tty=tty))


def _run(
    client: GpuDevClient, request: JobSubmit, on_interrupt: Interrupted | None, files: SyncedFolder, *, tty: bool
) -> int:
    """Run a job in a terminal or with the input of this program. Returns the exit code; raises UsageError."""
    if tty and files != NO_FILES:
        raise UsageError("--sync and --fetch can't be used with --tty. Leave out --tty.")
    if tty:
        # Loaded here: other jobs need no WebSockets.
        from gpu_dev.sessions.terminals.terminal_runs import run_in_terminal

        return run_in_terminal(client, request)
    feeds = has_input()
    runs_again = request.retries not in (UNSET, None) or request.preemptible is True
    if feeds and runs_again:
        raise UsageError("A retry can't read stdin again. Let the command read a file, or add `</dev/null`.")
    request = files.sent_with(client, request)
    return run_in_foreground(client, reading_input(request) if feeds else request, on_interrupt, files, feeds=feeds)


def _require_command(request: JobSubmit) -> None:
    if not request.workload.command:
        raise UsageError(
            "No command is given. Write it after `--`. A session, which has none, begins with `gpu-dev dev`.",
            next_command=_RUN_EXAMPLE,
        )


def _require_one_rehearsal(*, dry_run: bool, test_only: bool) -> None:
    """Raise UsageError where two answers are asked for."""
    if dry_run and test_only:
        raise UsageError("Give either --dry-run or --test-only: each shows an answer of its own.")


def _rehearse_if_asked(
    client: GpuDevClient, request: JobSubmit, output: Format, *, dry_run: bool, test_only: bool
) -> None:
    if test_only:
        _test(client, request, output)
    if dry_run:
        rehearse(client, request, output)


def _test(client: GpuDevClient, request: JobSubmit, output: Format) -> NoReturn:
    """Say when a job would start. A refusal is an error, as of submitting it."""
    put(show_start(request, client.would_submit(request), output, local_now()))
    raise typer.Exit(ExitCode.OK)


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came: like Ctrl-C, but nobody is to be asked."""


def run_in_foreground(
    client: GpuDevClient,
    request: JobSubmit,
    on_interrupt: Interrupted | None,
    files: SyncedFolder = NO_FILES,
    *,
    feeds: bool,
) -> int:
    """Submit a job, follow it to its end, and return the exit code; `feeds` passes stdin on, `files` come back."""
    key = str(uuid.uuid4())
    job: Job | None = None
    log = ResumableLog(1 if request.nodes is UNSET else request.nodes)
    while True:
        try:
            # After an interrupt in the middle of the submit, the same key finds out what became of it.
            job = job or client.submit(request, idempotency_key=key)
            job = wait_until(client, job, has_started)
            if (job.retries or job.preemption) is not None and log.attempt == 0:
                log.attempt = min(job.attempt, 1)  # it may have been retried since it was submitted
            if feeds:
                # Loaded here: other jobs need no WebSockets.
                from gpu_dev.sessions.input_feed import start_feeding

                start_feeding(client, job.id)
                feeds = False
            for chunk in client.follow_log(job.id, log) if has_output(job) else ():
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
            ended = wait_until(client, client.job(job.id), has_ended, told=waiting_line(job))
            say_use(client, ended)
            return code_with_files(exit_code_of(ended), brought=files.brought_back(client, ended))
        except KeyboardInterrupt as interrupt:
            terminated = isinstance(interrupt, TerminatedError)
            job = job or client.submit(request, idempotency_key=key)
            match _decision(job, on_interrupt, terminated=terminated):
                case Interrupted.GO_ON:
                    continue
                case Interrupted.DETACH:
                    say(f"{job.id} goes on. Its output: gpu-dev logs -f {job.id}   End it: gpu-dev cancel {job.id}")
                case Interrupted.CANCEL:
                    client.cancel(job.id)
                    say(f"{job.id} is cancelled. Its GPUs become free when it has ended.")
                case choice:
                    assert_never(choice)
            return ExitCode.TERMINATED if terminated else ExitCode.INTERRUPTED


def _decision(job: Job, on_interrupt: Interrupted | None, *, terminated: bool) -> Interrupted:
    """What becomes of the job: what was asked for, what the person says, or, where nobody is, its end.

    Stopping `gpu-dev run` in a script stops the job: GPUs that nobody waits for are GPUs wasted.
    """
    if on_interrupt is not None and not (terminated and on_interrupt is Interrupted.GO_ON):
        return on_interrupt
    if terminated or not can_ask():
        return Interrupted.CANCEL
    return ask_after_interrupt(job.id)


@contextmanager
def terminable() -> Iterator[None]:
    """While the block runs, SIGTERM raises TerminatedError."""

    def raise_terminated(_number: int, _frame: object) -> NoReturn:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _request(
    ctx: typer.Context,
    fields: dict[str, Any],
    gpus: int | None,
    duration: str | None,
    json_file: str | None,
    again: str | None,
    example: str,
) -> JobSubmit:
    if json_file is not None:
        if gpus is not None or duration is not None or again is not None or fields != {"workload": {}}:
            raise UsageError("--json-file holds the whole request; leave out the other options and the command.")
        return read_submit(json_file)
    if fields.get("after"):
        with client_for(ctx) as client:
            fields["after"] = [one | {"job": whole_id(client, one["job"])} for one in fields["after"]]
    if "booking_id" in fields:
        with client_for(ctx) as client:
            fields["booking_id"] = booking_id_of(client, fields["booking_id"])
    if again is None:
        asked = {"gpus": needed_gpus(gpus, example), "duration": needed_duration(duration, example)}
        return make_request(JobSubmit, {**fields, **asked})
    given = {"gpus": gpus, "duration": None if duration is None else parse_duration(duration)}
    given = {name: value for name, value in given.items() if value is not None}
    with client_for(ctx) as client:
        spec = client.job_spec(whole_id(client, again))
    return make_request(JobSubmit, asked_again(spec, {**fields, **given}))
