"""Settings of what users keep on the server: files that they send for their jobs, and disks."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from reservation_core.domain.disks.disk_life import DiskBounds
from reservation_core.ports.jobs.job_files import FileBounds
from reservation_core.runtime.settings.section import Section

_Bytes = Annotated[int, Field(ge=0, le=2**50)]


class SyncSettings(Section):
    """The bounds of what users send for their jobs, in bytes: all of it is in the database."""

    folder_bytes: _Bytes = 2 * 2**30  # the largest folder that is sent with a job
    user_bytes: _Bytes = 10 * 2**30  # the most for all files that a user has sent and that are not removed yet
    all_bytes: _Bytes = 100 * 2**30  # the most for all files that all users have sent and that are not removed yet

    @property
    def bounds(self) -> FileBounds:
        return FileBounds(self.folder_bytes, self.user_bytes, self.all_bytes)


class DiskSettings(Section):
    """The bounds of users' disks."""

    user_bytes: _Bytes = 2**40  # the most for all disks of a user, with deleted ones that can still be restored
    # The most for all disks of all users, with deleted ones that can still be restored.
    all_bytes: Annotated[int, Field(ge=0, le=2**60)] = 2**50
    kept_days: Annotated[int, Field(ge=0, le=3650)] = 30  # how long a deleted disk can be restored

    @property
    def bounds(self) -> DiskBounds:
        return DiskBounds(self.user_bytes, self.all_bytes)

    @property
    def kept(self) -> timedelta:
        return timedelta(days=self.kept_days)
