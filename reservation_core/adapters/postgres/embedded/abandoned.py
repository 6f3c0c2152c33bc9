"""Find database files whose home is gone.

Root's databases may lie outside their homes (see `layout`), so they survive when a home is deleted by hand. They are
listed but never removed, as a home that was moved looks the same.
"""

import os
from pathlib import Path

from reservation_core.adapters.postgres.embedded import layout, postmaster


def abandoned_databases() -> list[Path]:
    """Folders without a server whose home is gone or uses another folder.

    A home that is unreadable, or whose parent folders are missing too (an unmounted disk), may come back and keeps its
    folder out of this list.
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
