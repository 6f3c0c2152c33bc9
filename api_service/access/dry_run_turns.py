"""A bound on dry runs: each holds a picture of the whole queue until its turn comes."""

from collections.abc import Iterator
from contextlib import contextmanager

from api_service.problems import ProblemError

MOST = 16
_RETRY_S = 2


class DryRunTurns:
    """Counts the dry runs that are read or decided in this process."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._taken = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        """One of the turns. Raises ProblemError (503) when all are taken."""
        if self._taken >= self._most:
            detail = "Too many users ask now when a job would start. Nothing was submitted. Try again in a few seconds."
            raise ProblemError(503, "busy", detail, headers={"Retry-After": str(_RETRY_S)})
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
