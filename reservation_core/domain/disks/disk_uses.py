"""Disks of a job's owner that the job's pods have, each at a path."""

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from reservation_core.domain.sessions.secret_uses import fault_of_path

MOST_DISKS: Final = 100
"""The most disks of one user, deleted ones that are still kept counted."""
MOST_SNAPSHOTS: Final = 20
"""The most snapshots of one disk."""
MOST_IN_JOB: Final = 8
"""The most disks that a job has."""
DISKS_VARIABLE: Final = "GPU_DEV_DISK_FOLDER"
"""The variable with the folder below which disks' paths are: empty where they are at the paths themselves."""
HOME: Final = "home"
"""The name of the disk that jobs have at `HOME_PATH`."""
HOME_PATH: Final = "/home/dev"

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_READ_ONLY = "ro"


class DiskUse(NamedTuple):
    """A disk that a job has at the absolute `path`. Its name may change, but not `disk_id`, known of stored jobs."""

    name: str
    path: str
    read_only: bool = False
    disk_id: str | None = None


def is_disk_name(name: str) -> bool:
    """Whether a disk can have this name, which is also a label of Kubernetes."""
    return _NAME.fullmatch(name) is not None


def usual_path(name: str) -> str:
    """Where a disk is for which no path is named."""
    return HOME_PATH if name == HOME else f"/disks/{name}"


def read_use(text: str) -> DiskUse | None:
    """A use written as `NAME`, `NAME:/path`, or one of these with `:ro` after it; None for other text."""
    name, *rest = text.split(":")
    read_only = rest[-1:] == [_READ_ONLY]
    paths = rest[:-1] if read_only else rest
    if not is_disk_name(name) or len(paths) > 1 or not all(path.startswith("/") for path in paths):
        return None
    return DiskUse(name, paths[0] if paths else usual_path(name), read_only)


def written_use(use: DiskUse) -> str:
    """A use as `read_use` reads it."""
    path = "" if use.path == usual_path(use.name) else f":{use.path}"
    return f"{use.name}{path}{f':{_READ_ONLY}' if use.read_only else ''}"


def fault_of_uses(uses: Sequence[DiskUse], secret_paths: Collection[str]) -> str | None:
    """Why a job can't have these disks together beside its secrets' files; None where it can."""
    names = [use.name for use in uses]
    for use in uses:
        if (fault := fault_of_path(use.path)) is not None:
            return f"the path {use.path} of the disk {use.name} {fault}"
        if names.count(use.name) > 1:
            return f"the disk {use.name} is named twice; name it once"
        others = [*(other.path for other in uses if other is not use), *secret_paths]
        for path in others:
            if path == use.path or path.startswith(f"{use.path}/"):
                return f"{path} is at or within the path of the disk {use.name}; choose other paths"
    return None


def with_home(uses: Sequence[DiskUse], secret_paths: Collection[str]) -> tuple[DiskUse, ...]:
    """The uses and the disk `home` at its path; only the uses where they leave no room for it, or name it."""
    return tuple(uses) if fault_of_home(uses, secret_paths) is not None else (*uses, DiskUse(HOME, HOME_PATH))


def fault_of_home(uses: Sequence[DiskUse], secret_paths: Collection[str]) -> str | None:
    """Why a session with these disks can't have the disk `home` at its path too; None where it can."""
    if len(uses) >= MOST_IN_JOB:
        return f"a job has at most {MOST_IN_JOB} disks"
    return fault_of_uses((*uses, DiskUse(HOME, HOME_PATH)), secret_paths)
