"""`gpu-dev`: the table of commands, the options before them, and how errors become words and exit codes.

A command's module is imported when the command is used: help and completion stay quick.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from gpu_dev.command_meanings import help_asked, refuse_synonym, suggest_by_meaning, suggest_options
from gpu_dev.display.command_examples import add_examples
from gpu_dev.display.local_times import local_sentence, slot_words
from gpu_dev.errors import ApiError, ClientError, ExitCode
from gpu_dev.inputs.machine_zone import settle_zone
from gpu_dev.option_values import name_value
from gpu_dev.plain_values import change_parameters, read_plain
from gpu_dev.terminal import Rendered, clean, say

if TYPE_CHECKING:
    # For an annotation alone: `gpu-dev --help` needs no contracts.
    from gpu_dev.wire.base import Problem

_OURS = "urn:gpu-dev:problem:"
_PLACES = re.compile(r"^(?:path|query|header|body)(?:\.|: )")
JOBS = "Jobs"
SESSIONS = "Sessions"
LOOK = "GPUs and the queue"
BOOK = "The calendar"
PEOPLE = "People and tokens"
OPERATE = "Operate"


class Entry(NamedTuple):
    """One command: the module and the Typer application in it, and what `--help` says of it."""

    module: str
    app: str
    help: str
    panel: str


COMMANDS = {
    "status": Entry("jobs.status", "app", "Show your jobs, bookings and quota, and what ends soon.", JOBS),
    "run": Entry("jobs.run", "run_app", "Submit a job, follow its output, and end with its exit code.", JOBS),
    "submit": Entry("jobs.run", "submit_app", "Submit a job and print its id.", JOBS),
    "list": Entry("jobs.jobs", "list_app", "List jobs.", JOBS),
    "show": Entry("jobs.jobs", "show_app", "Show one job.", JOBS),
    "explain": Entry(
        "jobs.explain", "app", "Say why a job waits, or whether a request would be allowed, and when.", JOBS
    ),
    "logs": Entry("jobs.logs", "logs_app", "Print a job's output.", JOBS),
    "metrics": Entry("jobs.metrics", "app", "Show how a job used its GPUs over time.", JOBS),
    "events": Entry("jobs.logs", "events_app", "Print what happened to a job.", JOBS),
    "extend": Entry("jobs.jobs", "extend_app", "Give a job more time.", JOBS),
    "keep": Entry("jobs.jobs", "keep_app", "Keep a job whose GPUs are idle.", JOBS),
    "fetch": Entry("jobs.fetch", "app", "Bring back the files that a job has kept.", JOBS),
    "cancel": Entry("jobs.jobs", "cancel_app", "End running jobs, or take waiting jobs out of the queue.", JOBS),
    "dev": Entry("sessions.dev", "app", "Get GPUs for a session, and open a shell on them.", SESSIONS),
    "reserve": Entry("sessions.dev", "app", "The same as `dev`.", SESSIONS),
    "shell": Entry("sessions.shell", "shell_app", "Open a shell in a job.", SESSIONS),
    "exec": Entry(
        "sessions.shell", "exec_app", "Run a command in a running job, and end with its exit code.", SESSIONS
    ),
    "attach": Entry(
        "sessions.shell", "attach_app", "Join a terminal that you left or whose connection broke.", SESSIONS
    ),
    "cp": Entry("sessions.copy", "app", "Copy files and folders into a running job or out of it.", SESSIONS),
    "forward": Entry("sessions.forward", "forward_app", "Reach ports of a running job from this machine.", SESSIONS),
    "open": Entry("sessions.forward", "open_app", "Open a web application of a running job in the browser.", SESSIONS),
    "ssh": Entry("sessions.ssh", "ssh_app", "Enter a running job by OpenSSH.", SESSIONS),
    "config-ssh": Entry(
        "sessions.ssh", "config_app", "Let ssh, scp, rsync and editors reach running jobs as hosts.", SESSIONS
    ),
    "share": Entry("sessions.share", "share_app", "Let another user enter your job.", SESSIONS),
    "unshare": Entry("sessions.share", "unshare_app", "End a share of your job.", SESSIONS),
    "gpus": Entry("gpus.inventory", "gpus_app", "Show how many GPUs are free, and when the next one is.", LOOK),
    "top": Entry("gpus.top", "app", "Show all GPUs with their use now, live.", LOOK),
    "nodes": Entry(
        "gpus.inventory",
        "nodes_app",
        "List the nodes; `nodes cordon` keeps new jobs off a node, `nodes quarantine` off a GPU.",
        LOOK,
    ),
    "queue": Entry(
        "gpus.queue", "app", "Show waiting jobs and why they wait; `queue dlq` shows messages that failed.", LOOK
    ),
    "simulate": Entry(
        "gpus.simulate", "app", "Show how long jobs would have waited with more nodes, or under other rules.", LOOK
    ),
    "book": Entry("bookings.book", "app", "Book GPUs for a time slot; list, move and cancel bookings.", BOOK),
    "avail": Entry("bookings.avail", "app", "Show how many GPUs are free at which times.", BOOK),
    "usage": Entry("bookings.usage", "app", "Show GPU-hours held, used, idle and wasted.", BOOK),
    "notify": Entry("people.notify", "app", "Choose where and of which events you are notified.", PEOPLE),
    "login": Entry("people.login", "login_app", "Remember a server and a token for it.", PEOPLE),
    "logout": Entry("people.login", "logout_app", "Forget the token of a server.", PEOPLE),
    "keys": Entry("people.keys", "app", "List, add and remove your SSH keys.", PEOPLE),
    "secret": Entry("people.secret", "app", "Set, list and delete secrets that your jobs get.", PEOPLE),
    "disk": Entry("people.disk", "app", "Create, list, resize, delete and restore disks of your jobs.", PEOPLE),
    "tokens": Entry("people.tokens", "app", "List, create and revoke tokens.", PEOPLE),
    "users": Entry("people.users", "app", "List, add and disable users; `users me` shows your own.", PEOPLE),
    "projects": Entry("operate.policy", "projects_app", "List projects and their members.", PEOPLE),
    "policy": Entry("operate.policy", "app", "Show or change rules and quotas.", OPERATE),
    "maintenance": Entry(
        "bookings.maintenance", "app", "Plan maintenance windows, in which GPUs are not given out.", OPERATE
    ),
    "audit": Entry(
        "operate.audit",
        "app",
        "Show the audit log, export it, or verify that it was not changed.",
        OPERATE,
    ),
    "pods": Entry("operate.pods", "app", "List pods that belong to no known job, or end one.", OPERATE),
    "up": Entry("operate.operate", "up_app", "Run the whole system on this machine, in the foreground.", OPERATE),
    "db": Entry("operate.operate", "db_app", "Migrate the database, or show its revision.", OPERATE),
    "psql": Entry("operate.operate", "psql_app", "Open psql on the database of this machine's server.", OPERATE),
    "slurm": Entry("operate.slurm", "app", "Install sbatch, srun, squeue, scancel and sinfo, or remove them.", OPERATE),
    "completion": Entry("operate.completion", "app", "Print the completion script of a shell.", OPERATE),
}


class CommandTable(TyperGroup):
    """A group whose commands are stand-ins, good enough for help, until one of them is really used."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, entry in COMMANDS.items():
            self.commands[name] = TyperCommand(name=name, help=entry.help, rich_help_panel=entry.panel)
        change_parameters(self, read_plain, name_value)
        suggest_options(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in its stand-in's place, then go on as ever."""
        for name in args[:2] if args[0] == "help" else args[:1]:
            self._load(name)
        args = help_asked(ctx, args, self.commands)
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            for name in COMMANDS:  # the commands of groups may be what is meant
                self._load(name)
        refuse_synonym(ctx, args[0], self.commands)
        return super().resolve_command(ctx, args)

    def _load(self, name: str) -> None:
        entry = COMMANDS.get(name)
        if entry is None:
            return
        module = importlib.import_module(f"gpu_dev.commands.{entry.module}")
        command = typer.main.get_command(getattr(module, entry.app))
        command.name = name
        command.help = command.help or entry.help
        add_examples(command, name)
        change_parameters(command, read_plain, name_value)
        suggest_by_meaning(command)
        self.commands[name] = command


app = typer.Typer(
    name="gpu-dev",
    cls=CommandTable,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(wanted: bool) -> None:
    """Print the version of the installed distribution and end."""
    if wanted:
        import importlib.metadata

        typer.echo(f"gpu-dev {importlib.metadata.version('gpu-dev-server')}")
        say_namesakes()
        raise typer.Exit


def say_namesakes() -> None:
    """Say that another program is named `gpu-dev`, too."""
    from gpu_dev.namesakes import namesake_warning, own_program

    if (warning := namesake_warning(own_program(), os.environ)) is not None:
        say(warning)


@app.callback()
def options(
    ctx: typer.Context,
    server: Annotated[
        str | None, typer.Option(help="The server's address (env: GPU_DEV_SERVER; else the login; else this machine).")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token (else env: GPU_DEV_TOKEN; else the login).")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One place where people who share GPUs get them.

    Start with:  gpu-dev run --gpus 1 --for 1h -- python train.py
    """
    # `gpu_dev.session` reads these options from the context.
    del server, token_file, version
    if ctx.invoked_subcommand is None:
        say_namesakes()
        importlib.import_module("gpu_dev.commands.jobs.status").begin(ctx)


def main() -> None:
    """Run the command line; ends the process with a documented exit code."""
    settle_zone(os.environ)
    try:
        app(prog_name="gpu-dev")
    except ClientError as error:
        report(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


def report(error: ClientError) -> None:
    """Tell an error on stderr: what is wrong, every rule that was broken, times that would do, what to type next."""
    typer.secho("error: ", fg="red", err=True, nl=False)
    for line in _lines_of(error.problem) if isinstance(error, ApiError) else [error.detail]:
        say(line)
    if error.next_command is not None:
        say(Rendered(clean(f"try: {error.next_command}")))  # to be typed as it is


def _lines_of(problem: "Problem") -> Iterator[str]:
    from gpu_dev.inputs.requests import named_options

    return (named_options(local_sentence(line)) for line in described(problem))


def described(problem: "Problem") -> Iterator[str]:
    """A refusal of the server in lines, each thing once: what is wrong, times that would do, what to do next."""
    rules = problem.broken_rules or []
    if problem.type == f"{_OURS}invalid_request":
        from gpu_dev.inputs.requests import named_fault

        faults = [named_fault(_PLACES.sub("", rule.detail)) for rule in rules]
        yield "The request is not valid:"
        yield from (f"  - {fault}" for fault in faults)
        return
    if problem.type.removeprefix(_OURS) in ("no_such_job", "no_such_secret", "no_such_disk", "beyond_booked_share"):
        yield problem.detail  # the rules name the fields of the same thing
        return
    # Titles of others than this system's servers say what their details may not.
    whole = problem.type.startswith(_OURS) or problem.title in problem.detail
    rest = problem.detail if whole else f"{problem.title}: {problem.detail}"
    for rule in rules:
        rest = rest.replace(rule.detail, "")
    if len(rules) == 1:
        yield f"{rules[0].detail} [{rules[0].code}]"
    elif rules:
        yield "Several rules forbid it:"
        yield from (f"  - {rule.code}: {rule.detail}" for rule in rules)
    for slot in problem.nearest_slots or ():
        yield f"  free from {slot_words(slot.start, slot.end)}"
    if rest := " ".join(rest.replace("`nearest_slots`", "these times").split()):
        yield rest
