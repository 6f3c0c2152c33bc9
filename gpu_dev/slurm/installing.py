"""Slurm's commands as programs in a folder.

A package can't bring programs with an extra alone, and must not bring them to everybody: where Slurm is installed, too,
`sbatch` has to stay Slurm's until somebody decides otherwise.
"""

import os
import shlex
import sys
from pathlib import Path

from gpu_dev.errors import UsageError
from gpu_dev.slurm.__main__ import PROGRAMS

_MARK = "# Written by `gpu-dev slurm install`; `gpu-dev slurm remove` removes it.\n"
_MODE = 0o755


def program_text(name: str) -> str:
    """The program of a command: it runs the Python that this command line runs on."""
    return f'#!/bin/sh\n{_MARK}exec {shlex.quote(sys.executable)} -P -m gpu_dev.slurm {name} "$@"\n'


def install(folder: Path, search_path: str, *, force: bool) -> None:
    """Write the programs, or none of them.

    Raises UsageError if a file of the folder is another program, or, without `force`, a program of `search_path` is.
    """
    for name in PROGRAMS:
        place = folder / name
        if (place.exists() or place.is_symlink()) and not _is_ours(place):
            raise UsageError(f"{place} is another program. Name another folder: gpu-dev slurm install FOLDER.")
        if not force and (other := _other(name, search_path)) is not None:
            raise UsageError(
                f"Another program is named {name}: {other}. To use these commands instead of Slurm's, add --yes, and "
                f"put {folder} before {other.parent} in the PATH."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            fresh = folder / f".{name}.{os.getpid()}"
            fresh.write_text(program_text(name), encoding="utf-8")
            fresh.chmod(_MODE)
            fresh.replace(folder / name)
    except OSError as error:
        raise UsageError(f"{folder} can't be written: {error.strerror}.") from error


def remove(folder: Path) -> list[str]:
    """Remove the programs of the folder that `install` wrote; returns their names. Raises UsageError."""
    ours = [name for name in PROGRAMS if _is_ours(folder / name)]
    try:
        for name in ours:
            (folder / name).unlink()
    except OSError as error:
        raise UsageError(f"{folder} can't be written: {error.strerror}.") from error
    return ours


def _is_ours(place: Path) -> bool:
    try:
        return place.is_file() and _MARK.encode() in place.read_bytes()[:1000]
    except OSError:
        return False


def _other(name: str, search_path: str) -> Path | None:
    places = [Path(part, name) for part in search_path.split(os.pathsep) if part]
    return next((place for place in places if os.access(place, os.X_OK) and not _is_ours(place)), None)
