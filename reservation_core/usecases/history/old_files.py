"""Removing files that were sent for jobs, or kept by jobs, once nothing has used them for long."""

from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory

OLD_FOLDERS = 100
OLD_CHUNKS = 1000
_KEPT_LONGER = timedelta(hours=2)
"""Chunks are kept longer than folders: their use is noted once an hour."""


async def remove_old_files(uow_factory: UnitOfWorkFactory, before: datetime, now: datetime) -> int:
    """Remove folders and chunks that nothing used since a time; safe to end at any time. Returns how many.

    Chunks go once no older folder is left, as one that an open job begins with is used now, and its chunks are.
    """
    async with uow_factory() as uow:
        folders = await uow.files.old_folders(before, OLD_FOLDERS)
        for folder in folders:
            if folder.is_needed:
                await uow.files.use_folder(folder.user_id, folder.digest, now)
        unneeded = [folder for folder in folders if not folder.is_needed]
        if unneeded:
            await uow.files.remove_folders(unneeded)
    if len(folders) == OLD_FOLDERS:
        return len(unneeded)
    async with uow_factory() as uow:
        return len(unneeded) + await uow.files.remove_chunks(before - _KEPT_LONGER, OLD_CHUNKS)
