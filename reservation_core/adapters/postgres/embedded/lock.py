"""One process at a time in a folder: a lock file that the kernel releases when its holder ends in any way."""

import fcntl
import os
from pathlib import Path

from reservation_core.adapters.postgres.embedded.errors import AlreadyInUseError


class FolderLock:
    """An exclusive lock on a file that names its holder's pid. Not inherited by child processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def acquire(self, purpose: str) -> None:
        """Take the lock without waiting.

        Raises AlreadyInUseError, which names the guarded `purpose` and the lock holder's pid.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise AlreadyInUseError(
                f"{purpose} is in use by the process with pid {holder} (lock {self._path}). "
                "Stop that process first, or choose another folder with GPU_DEV_HOME."
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        self._fd = fd

    def release(self) -> None:
        """Release the lock, if held. The file stays: without it, two processes could hold the lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @property
    def held(self) -> bool:
        return self._fd is not None
