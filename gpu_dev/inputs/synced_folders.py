"""`--sync` and `--fetch`: the folder that a job gets, and what comes back of it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpu_dev.errors import ClientError, ExitCode, UsageError
from gpu_dev.terminal import say
from gpu_dev.wire.jobs import Job, JobSubmit
from reservation_core.domain.sync.job_sync import MOST_FETCHED, fault_of_fetched

if TYPE_CHECKING:
    from gpu_dev.client import GpuDevClient


class SyncedFolder(NamedTuple):
    """What the options say: a folder to send, if any, and paths to bring back into it or the current folder."""

    root: Path | None
    fetch: tuple[str, ...]

    def sent_with(self, client: "GpuDevClient", request: JobSubmit) -> JobSubmit:
        """Send the folder; returns the request that names it. Raises UsageError and ClientError."""
        if self.root is None and not self.fetch:
            return request
        from gpu_dev.sync.sending import send_folder
        from gpu_dev.wire.job_files.synced import JobSyncAsked

        folder = None if self.root is None else send_folder(client.files, self.root)
        return replace(request, sync=JobSyncAsked(folder=folder, fetch=list(self.fetch)))

    def brought_back(self, client: "GpuDevClient", job: Job) -> bool:
        """Write what an ended job has kept; says so, or why not, and returns whether it did."""
        if not self.fetch:
            return True
        if job.array is not None:
            say(f"The elements of {job.id} have files of their own. For the first: gpu-dev fetch {job.id}.0 --to DIR")
            return True
        from gpu_dev.sync.sending import bring_results, brought

        into = self.root or Path.cwd()
        try:
            count = bring_results(client.files, job.id, into)
        except ClientError as error:
            say(f"{error} Try again: {error.next_command or f'gpu-dev fetch {job.id}'}")
            return False
        say(brought(count, job.id, into))
        return True


NO_FILES = SyncedFolder(None, ())


def code_with_files(code: int, *, brought: bool) -> int:
    """The exit code of a run: the job's, or a failure where the job's files did not come."""
    return code or (ExitCode.OK if brought else ExitCode.REFUSED)


def read_synced(sync: str | None, fetch: Sequence[str] | None) -> SyncedFolder:
    """The options, checked. Raises UsageError."""
    root = None if sync is None else Path(sync).resolve()
    if root is not None and not root.is_dir():
        raise UsageError(f"--sync {sync}: there is no such folder.")
    paths = tuple(os.path.normpath(path) for path in fetch or ())
    if len(paths) > MOST_FETCHED:
        raise UsageError(f"--fetch can be given {MOST_FETCHED} times at most. Name a folder that has the files.")
    if (fault := fault_of_fetched(paths)) is not None:
        raise UsageError(f"--fetch: {fault}.")
    return SyncedFolder(root, paths)
