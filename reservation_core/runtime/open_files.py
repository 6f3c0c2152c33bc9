"""The limit of open files and connections of this process (RLIMIT_NOFILE)."""

import resource
from contextlib import suppress

_MOST = 2**20
"""More is useless, and some programs iterate over all descriptors."""

_raised_from: int | None = None


def raise_open_files() -> None:
    """Raise the soft limit to the hard one, for this process and its later children."""
    global _raised_from  # noqa: PLW0603 - the limit is the process's, too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(OSError, ValueError):  # some systems allow less than their hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _raised_from = soft


def open_files() -> int:
    """The soft limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


def soft_limit_before() -> int | None:
    """The soft limit before `raise_open_files` raised it; None if it did not. Jobs start with this one."""
    return _raised_from
