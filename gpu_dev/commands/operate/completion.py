"""`completion SHELL`: the script that makes a shell complete commands, options and job ids."""

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


class Shell(StrEnum):
    """The shells whose completion is known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="The shell.")]) -> None:
    """Print the completion script of a shell, such as for ~/.bashrc:  source <(gpu-dev completion bash)"""
    sys.stdout.flush()
    # The script is made by the same code that the shell will ask later, which is reached through this variable.
    environment = {**os.environ, "_GPU_DEV_COMPLETE": f"source_{shell.value}"}
    os.execve(sys.executable, [sys.executable, "-m", "gpu_dev"], environment)  # noqa: S606 - no shell is wanted
