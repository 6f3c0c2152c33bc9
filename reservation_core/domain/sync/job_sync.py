"""What a job gets before its start, and what comes back after its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reservation_core.domain.sync.folders import fault_of_path

FOLDER_VARIABLE: Final = "GPU_DEV_SYNC_FOLDER"
"""The variable with the folder in which a job with files works."""
MOST_FETCHED: Final = 16
"""The most paths that a job brings back."""
HERE: Final = "."
"""The path of the whole folder."""


@dataclass(frozen=True, slots=True)
class JobSync:
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
