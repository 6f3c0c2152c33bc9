"""`ssh` and `config-ssh`."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from gpu_dev.errors import UsageError
from gpu_dev.options import Rank
from gpu_dev.session import client_for, complete_job_id, connection_of, whole_id
from gpu_dev.sessions.ssh.ssh_config import add, config_text, our_command, remove
from gpu_dev.sessions.ssh.ssh_files import host_of, job_of, note_user, options, refresh, ssh_files, user_of
from gpu_dev.terminal import put, say

ssh_app = typer.Typer(add_completion=False)
config_app = typer.Typer(add_completion=False)


@ssh_app.command(context_settings={"allow_interspersed_args": False})
def ssh(
    ctx: typer.Context,
    job_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID",
            show_default=False,
            help="A job's name or id; with --stdio its host name.",
            autocompletion=complete_job_id,
        ),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="The command, after `--` (default: a shell).")
    ] = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Only carry stdin and stdout to the SSH server, as OpenSSH's ProxyCommand.")
    ] = False,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Only fetch the certificate, which is good for an hour.")
    ] = False,
    rank: Rank = 0,
) -> None:
    """Enter a running job by this machine's OpenSSH, over the server's own address.

    The command makes a key of its own once, and fetches a certificate for it that is good for an hour.

    For OpenSSH's own options, and for scp, rsync and editors, run `gpu-dev config-ssh` and use the host `ID.gpu-dev`,
    or `ID+1.gpu-dev` for the node of rank 1.
    """
    words, rank = _without_rank(command or [], rank)
    connection = connection_of(ctx)
    files = ssh_files(connection.server, os.environ)
    with client_for(ctx) as client:
        if certificate:
            refresh(client.sessions, files)
            if job_id is not None:
                note_user(files, job_id)
            return
        if job_id is None:
            raise UsageError("Which job? Give its id or name.", next_command="gpu-dev list")
        if stdio:
            from gpu_dev.sessions.descriptors import run_polling
            from gpu_dev.sessions.ssh.ssh_streams import carry_ssh

            run_polling(carry_ssh(client.sessions, job_of(job_id)))
            return
        whole = whole_id(client, job_id)
        refresh(client.sessions, files)
    proxy = f"{shlex.join(our_command(connection)).replace('%', '%%')} ssh --stdio %h"
    given = [word for line in options(files, proxy) for word in ("-o", line)]
    user = user_of(whole, rank)
    try:
        os.execvp("ssh", ["ssh", *given, "-l", user, host_of(user), *words])  # noqa: S606, S607
    except FileNotFoundError as error:
        raise UsageError("OpenSSH is not installed here: there is no ssh.", next_command="gpu-dev shell ID") from error


def _without_rank(command: list[str], rank: int) -> tuple[list[str], int]:
    """The command's own words: `--rank` and `--` may follow the job."""
    if len(command) > 1 and command[0] == "--rank" and command[1].isdecimal():
        command, rank = command[2:], int(command[1])
    return command[1:] if command[:1] == ["--"] else command, rank


@config_app.command("config-ssh")
def config_ssh(
    ctx: typer.Context,
    removes: Annotated[bool, typer.Option("--remove", help="Remove the file and the line again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be written.")] = False,
) -> None:
    """Let ssh, scp, rsync and editors reach running jobs as hosts, such as `job-7f3k9q2m.gpu-dev`.

    It writes a file of its own, and one line that includes it at the top of ~/.ssh/config. All else there stays.
    """
    connection = connection_of(ctx)
    files = ssh_files(connection.server, os.environ)
    user_config = _user_config()
    if removes:
        is_changed = remove(files, user_config)
        put(f"The hosts *.gpu-dev are {'removed from' if is_changed else 'not in'} {user_config}.\n")
        return
    text = config_text(connection, files)
    if dry_run:
        put(f"{files.config}:\n{text}\n{user_config}, at its top:\nInclude {files.config}\n")
        return
    write_config(ctx)
    put("Try it: ssh ID.gpu-dev, with the id or name of a running job.\n")


def write_config(ctx: typer.Context) -> None:
    """Make jobs hosts of OpenSSH, and say which files are written."""
    connection = connection_of(ctx)
    files = ssh_files(connection.server, os.environ)
    is_changed = add(connection, files, _user_config())
    say(f"{files.config} is written; {_user_config()} {'now includes' if is_changed else 'includes'} it.")


def _user_config() -> Path:
    return Path(os.environ.get("HOME") or Path.home()) / ".ssh" / "config"
