"""Secrets of a job's owner that the job's pods get, each as a variable or as a file."""

import re
from collections.abc import Collection, Sequence
from posixpath import normpath
from typing import Final, NamedTuple

LONGEST_SECRET: Final = 64 * 1024
"""The most bytes of a value in UTF-8."""
MOST_SECRETS: Final = 100
"""The most secrets of one user."""
MOST_IN_JOB: Final = 16
"""The most secrets that a job gets. A Secret of Kubernetes, 1 MiB at most, holds so many of the longest."""
FILES_VARIABLE: Final = "GPU_DEV_SECRET_FILES"
"""The variable with the folder below which secrets' paths are: empty where they are at the paths themselves."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PATH = re.compile(r"/[A-Za-z0-9._/@%+=,-]{1,1023}")
_LONGEST_PART = 255
_OURS = ("/dev", "/gpu-dev", "/opt/gpu-dev", "/proc", "/sys")


class SecretUse(NamedTuple):
    """A secret of the owner that a job gets: in the variable `env`, or in a file at the absolute `path`."""

    name: str
    env: str | None = None
    path: str | None = None


def is_secret_name(name: str) -> bool:
    """Whether a secret can have this name, which is also a key of a Secret of Kubernetes."""
    return _NAME.fullmatch(name) is not None


def read_use(text: str) -> SecretUse | None:
    """A use written as `NAME` (the variable of that name), `NAME=VARIABLE` or `NAME=/path`; None for other text."""
    name, equals, place = text.partition("=")
    if not is_secret_name(name) or (equals and not place):
        return None
    return SecretUse(name, path=place) if place.startswith("/") else SecretUse(name, env=place or name)


def written_use(name: str, env: str | None, path: str | None) -> str:
    """A use as `read_use` reads it."""
    return name if env == name else f"{name}={path or env}"


def fault_of_path(path: str) -> str | None:
    """Why a secret can't be in a file at this path; None where it can."""
    if not _PATH.fullmatch(path) or "//" in path or normpath(path) != path:
        return "must be an absolute path without `.`, `..` and repeated or final slashes, of usual characters"
    if any(len(part) > _LONGEST_PART for part in path.split("/")):
        return f"must have no part of more than {_LONGEST_PART} characters"
    if any(path == folder or path.startswith(f"{folder}/") for folder in _OURS):
        return f"must not be in {', '.join(_OURS)}"
    return None


def fault_of_uses(uses: Sequence[SecretUse], variables: Collection[str]) -> str | None:
    """Why a job can't get these secrets together beside its other variables; None where it can."""
    names = [use.env for use in uses if use.env is not None]
    paths = sorted(use.path for use in uses if use.path is not None)
    for name in names:
        if name in variables or names.count(name) > 1:
            return f"the variable {name} is set twice; give it one value"
    for path in paths:
        if paths.count(path) > 1 or any(other.startswith(f"{path}/") for other in paths):
            return f"{path} is the path of two secrets, or a folder of another; choose other paths"
    return None
