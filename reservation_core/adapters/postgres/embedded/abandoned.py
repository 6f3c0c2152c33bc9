"""Files of databases that no home leads to any more.

Root's databases may lie outside their homes (see `layout`), so deleting a home by hand leaves them behind. They are
found here and never removed: a home that was moved or copied away looks the same from here, and its only data would be
lost.
"""

import os
from pathlib import Path

from reservation_core.adapters.postgres.embedded import layout, postmaster


def abandoned_databases() -> list[Path]:
    """The folders whose home is gone, or uses another one, and on which no server runs.

    A home that can't be looked at, or whose surroundings are missing too (a disk that isn't there), may come back: it
    keeps its folder out of this list.
    """
    return [
        folder
        for folder in sorted(layout.SHARED_ROOT.glob(f"{layout.SHARED_PREFIX}*"))
        if _is_abandoned(folder) and postmaster.find(folder / "data") is None
    ]


def _is_abandoned(folder: Path) -> bool:
    try:
        link = Path((folder / layout.BELONGS_TO).read_text(encoding="utf-8").removesuffix("\n"))
        os.lstat(link.parent.parent)
        return link.is_absolute() and (not os.path.lexists(link) or link.readlink() != folder)
    except (OSError, UnicodeDecodeError):
        return False
