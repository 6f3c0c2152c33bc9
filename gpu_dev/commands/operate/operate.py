"""`up`, `db` and `psql`: for whoever runs the server. Each becomes the program that owns the server or the database."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from gpu_dev.errors import UsageError

up_app = typer.Typer(add_completion=False)
db_app = typer.Typer(no_args_is_help=True, add_completion=False)
psql_app = typer.Typer(add_completion=False)

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@up_app.command()
def up() -> None:
    """Run the whole system on this machine, in the foreground: API, processor, database, local cluster.

    Its settings are environment variables, which `python -m standalone --help` lists.
    """
    _become("standalone", ())


@psql_app.command(context_settings=_PASS_ON)
def psql(ctx: typer.Context) -> None:
    """Open psql on the database of this machine's server; what follows is psql's (`-?` shows its own help)."""
    if ctx.args in (["-h"], ["--help"]):
        typer.echo(ctx.get_help())
        return
    _become("standalone", ["psql", *ctx.args])


@db_app.command()
def migrate() -> None:
    """Bring the database's schema up to date."""
    _become("reservation_core.runtime.database", ["migrate"])


@db_app.command()
def status() -> None:
    """Show where the database's schema stands."""
    _become("reservation_core.runtime.database", ["status"])


def _become(module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by `python -m module`, so that signals and exit codes are its own.

    Raises UsageError where only the command line is installed.
    """
    if importlib.util.find_spec("sqlalchemy") is None:
        raise UsageError(
            "Only the command line is installed here. Install the server's packages, too: "
            "in a clone of the project, pip install '.[server]'."
        )
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell is wanted
