"""Editors of this machine on a session: what `dev --ide` opens."""

import shlex
import shutil
import subprocess
from enum import StrEnum

from gpu_dev.sessions.ssh.ssh_files import host_of
from gpu_dev.terminal import say


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
