"""A bound on a user's open streams, since each keeps a connection and memory.

Each API process counts for itself.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from api_service.problems import ProblemError

_RETRY_S = 30


class OpenStreams:
    """Counts open streams by user; a user may have `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[int] = Counter()

    def place(self, user_id: int) -> AbstractContextManager[None]:
        """Reserve a place for as long as a stream is open. Raises ProblemError (429) if none is left."""
        if self._open[user_id] >= self._most:
            detail = (
                f"You have {self._most} streams open, the most that one user may have. Close pages, or end programs, "
                "that follow jobs; then try again."
            )
            raise ProblemError(429, "too_many_streams", detail, headers={"Retry-After": str(_RETRY_S)})
        return self._hold(user_id)

    @contextmanager
    def _hold(self, user_id: int) -> Iterator[None]:
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if self._open[user_id] <= 0:
                del self._open[user_id]
