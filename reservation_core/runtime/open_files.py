"""How many files and connections this process may have open at once (RLIMIT_NOFILE)."""

import resource
from contextlib import suppress

_MOST = 2**20
"""More is of no use, and some programs walk through all of them."""

_raised_from: int | None = None


def raise_open_files() -> None:
    """Raise the soft limit to the hard one, for this process and those that it starts from now on."""
    global _raised_from  # noqa: PLW0603 - the limit is the process's, too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(OSError, ValueError):  # some systems allow less than their hard limit says
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _raised_from = soft


def open_files() -> int:
    """How many may be open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


def soft_limit_before() -> int | None:
    """The soft limit before `raise_open_files` raised it; None if it did not. Jobs start with this one."""
    return _raised_from
