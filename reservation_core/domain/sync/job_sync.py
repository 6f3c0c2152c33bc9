"""What a job gets before its start, and what comes back after its end."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from reservation_core.domain.sync.folders import FolderEntry, fault_of_path, is_of_git

FOLDER_VARIABLE: Final = "GPU_DEV_SYNC_FOLDER"
"""The variable with the folder in which a job with files works."""
MOST_FETCHED: Final = 16
"""The most paths that a job brings back."""
HERE: Final = "."
"""The path of the whole folder."""


class JobSync(NamedTuple):
    """The digest of the owner's folder that a job begins with, if any, and the paths in it that are kept at its end."""

    folder: str | None
    fetch: tuple[str, ...] = ()


def fault_of_fetched(paths: Sequence[str]) -> str | None:
    """Why these paths can't be brought back; None where they can."""
    for path in paths:
        if path != HERE and (fault := fault_of_path(path)) is not None:
            return f"the path {path!r} {fault}"
    if len(set(paths)) != len(paths):
        return "a path stands twice; give it once"
    return None


def fault_of_kept(fetch: Sequence[str], entries: Iterable[FolderEntry]) -> str | None:
    """Why a job can't keep these entries; None where its owner asked for all of them.

    They are written over the owner's files, and the program that chose them is not always the owner's.
    """
    below = tuple(f"{path}/" for path in fetch)
    for entry in entries:
        if HERE not in fetch and entry.path not in fetch and not entry.path.startswith(below):
            return f"{entry.path!r} is not in the paths that were asked for, {', '.join(fetch)}"
        if is_of_git(entry.path):
            return f"{entry.path!r} is of Git, which would execute what comes there"
    return None
