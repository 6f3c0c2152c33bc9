"""Settings of the files that users send for their jobs."""

from typing import Annotated

from pydantic import Field

from reservation_core.ports.jobs.job_files import FileBounds
from reservation_core.runtime.settings.section import Section

_Bytes = Annotated[int, Field(ge=0, le=2**50)]


class SyncSettings(Section):
    """The bounds of what users send for their jobs, in bytes: all of it is in the database."""

    folder_bytes: _Bytes = 2 * 2**30  # the files of one folder
    user_bytes: _Bytes = 10 * 2**30  # all that a user has sent and that is not removed yet
    all_bytes: _Bytes = 100 * 2**30  # all that all users have sent

    @property
    def bounds(self) -> FileBounds:
        return FileBounds(self.folder_bytes, self.user_bytes, self.all_bytes)
