"""Other programs named `gpu-dev` on the PATH."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

NAME = "gpu-dev"


def own_program() -> Path:
    """The file that was called; for `python -m gpu_dev` the one beside its Python."""
    called = Path(sys.argv[0])
    return called if called.name == NAME else Path(sys.executable).with_name(NAME)


def namesake_warning(own: Path, environ: Mapping[str, str]) -> str | None:
    """A sentence on the first other program of this name, and which of the two the PATH finds; None without one."""
    found = _programs(environ.get("PATH", ""))
    other = next((path for path in found if path.resolve() != own.resolve()), None)
    if other is None:
        return None
    warning = f"Another program is named {NAME}: {other}."
    if other != found[0]:
        return f"{warning} The PATH finds this one first: {own}."
    return f"{warning} The PATH finds it first. Put {own.parent} before {other.parent} in the PATH, or call {own}."


def _programs(search_path: str) -> list[Path]:
    """The programs of this name, in the order of the PATH."""
    places = [Path(folder, NAME) for folder in search_path.split(os.pathsep) if folder]
    return [place for place in places if place.is_file() and os.access(place, os.X_OK)]
