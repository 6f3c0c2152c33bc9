"""`slurm install` and `slurm remove`."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from gpu_dev.namesakes import own_program
from gpu_dev.slurm.__main__ import PROGRAMS
from gpu_dev.slurm.installing import install, remove
from gpu_dev.terminal import put, say

app = typer.Typer(add_completion=False, no_args_is_help=True)

Folder = Annotated[
    Path | None, typer.Argument(metavar="FOLDER", help="The folder (default: that of `gpu-dev`).", show_default=False)
]


@app.command("install")
def install_commands(
    folder: Folder = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Also where programs of these names are installed.")] = False,
) -> None:
    """Install sbatch, srun, squeue, scancel and sinfo for users who know Slurm. They use the server of `gpu-dev`.

    Where Slurm itself is installed, it needs --yes.
    """
    place = _place(folder)
    install(place, os.environ.get("PATH", ""), force=yes)
    put(f"{', '.join(PROGRAMS)} are installed in {place}. To undo: gpu-dev slurm remove {shlex.quote(str(place))}\n")
    if str(place) not in os.environ.get("PATH", "").split(os.pathsep):
        say(f"The PATH does not have {place}. Add it: export PATH={shlex.quote(str(place))}:$PATH")


@app.command("remove")
def remove_commands(folder: Folder = None) -> None:
    """Remove the commands that `gpu-dev slurm install` installed."""
    place = _place(folder)
    names = remove(place)
    put(f"Removed from {place}: {', '.join(names)}\n" if names else f"None of these commands is in {place}\n")


def _place(folder: Path | None) -> Path:
    return (Path.cwd() / folder.expanduser()) if folder is not None else own_program().parent.absolute()
