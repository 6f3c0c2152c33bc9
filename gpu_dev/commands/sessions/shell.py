"""`shell`, `exec` and `attach`."""

import shlex
import sys
from typing import Annotated

import typer

from gpu_dev.client import GpuDevClient
from gpu_dev.display.output import Format, show_list
from gpu_dev.display.views import TERMINAL
from gpu_dev.errors import AmbiguousIdError, NoSuchObjectError, UsageError
from gpu_dev.options import JobId, Output, Rank
from gpu_dev.session import client_for, complete_job_id, whole_id
from gpu_dev.sessions.waiting import wait_for_start
from gpu_dev.terminal import put
from reservation_core.domain.statuses import FINAL_STATUSES, JobStatus

shell_app = typer.Typer(add_completion=False)
exec_app = typer.Typer(add_completion=False)
attach_app = typer.Typer(add_completion=False)

_SHOWN = 10

OptionalId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        show_default=False,
        help="A job's name or id (default: your only open job).",
        autocompletion=complete_job_id,
    ),
]


@shell_app.command()
def shell(ctx: typer.Context, job_id: OptionalId = None, rank: Rank = 0) -> None:
    """Open a shell in a job. If the job waits in the queue, wait until it runs.

    Escapes after Enter, as with ssh: `~.` leaves, `~^Z` suspends, `~?` lists them.

    If the connection breaks, the command tries for a minute to join the shell again.

    Without a terminal, the shell reads its commands from stdin.
    """
    from gpu_dev.sessions.entering import enter_shell

    with client_for(ctx) as client:
        whole = session_id(client, job_id)
        wait_for_start(client, client.job(whole))
        code = enter_shell(client, whole, rank)
    raise typer.Exit(code)


@exec_app.command("exec", context_settings={"allow_interspersed_args": False})
def execute(
    ctx: typer.Context,
    job_id: JobId,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command, after `--`.")],
    tty: Annotated[
        bool, typer.Option("--tty", help="Give the command a terminal, as editors and debuggers need it.")
    ] = False,
    rank: Rank = 0,
) -> None:
    """Run a command in a running job, and end with its exit code.

    It reads this command's stdin to its end, and its stdout and stderr stay apart; with --tty it has a terminal.

    Ctrl-C and SIGTERM end it.
    """
    from gpu_dev.sessions.entering import run_program

    words = command[1:] if command[:1] == ["--"] else command
    if not words:
        raise UsageError(
            "No command is given. Write it after `--`.",
            next_command=f"gpu-dev exec {shlex.quote(job_id)} -- nvidia-smi",
        )
    with client_for(ctx) as client:
        whole = whole_id(client, job_id)
        code = run_program(client, whole, words, rank, tty=tty)
    raise typer.Exit(code)


@attach_app.command()
def attach(
    ctx: typer.Context,
    job_id: OptionalId = None,
    terminal: Annotated[
        str | None, typer.Option(metavar="NAME", help="The terminal to join: a number that --list shows, or pts/N.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the job's terminals instead of joining one.")] = False,
    rank: Rank = 0,
    output: Output = Format.TABLE,
) -> None:
    """Join an open terminal of a job, such as one that you left or whose connection broke off.

    Without --terminal it is your own newest one, or else the newest of the job.

    Its recent output is shown first. Other users in it stay. `~.` leaves it again.
    """
    if list_:
        with client_for(ctx) as client:
            put(show_list(client.sessions.terminals(session_id(client, job_id), rank=rank), TERMINAL, output))
        return
    from gpu_dev.sessions.entering import join_terminal

    name = None if terminal is None else terminal.removeprefix("/dev/").removeprefix("pts/")
    if not sys.stdin.isatty():
        raise UsageError(
            "A terminal can be joined only from a terminal.",
            next_command=f"gpu-dev exec {shlex.quote(job_id or 'ID')} -- COMMAND",
        )
    with client_for(ctx) as client:
        whole = session_id(client, job_id)
        code = join_terminal(client, whole, rank, name)
    raise typer.Exit(code)


def session_id(client: GpuDevClient, text: str | None) -> str:
    """The job that `text` stands for, or the user's only open job. Raises AmbiguousIdError, NoSuchObjectError."""
    if text is not None:
        return whole_id(client, text)
    me = client.me().name  # administrators see everybody's jobs
    mine = list(client.jobs(frozenset(JobStatus) - FINAL_STATUSES - {JobStatus.ENDING}, user=me))
    match [job for job in mine if job.status is JobStatus.RUNNING] or mine:
        case []:
            raise NoSuchObjectError("You have no open job.", next_command="gpu-dev dev --gpus 1 --for 4h")
        case [only]:
            return only.id
        case several:
            named = ", ".join(f"{job.id} ({job.name})" if job.name else job.id for job in several[:_SHOWN])
            more = " …" if len(several) > _SHOWN else ""
            raise AmbiguousIdError(f"You have {len(several)} jobs open: {named}{more}. Type an id or a name.")
