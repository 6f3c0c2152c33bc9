"""A pool of connections that opens another one only where that is worth it.

Loops and requests that come at the same time need a connection for a moment only. If each opened one, its server
process would keep 2 to 10 MB for as long as this process runs.
"""

import time
from contextlib import suppress

from sqlalchemy import AsyncAdaptedQueuePool
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util.queue import Empty

WORTH_S = 0.05
"""So many seconds of waiting, of all that waited together, are worth another connection."""
LONGEST_S = 0.25
"""No one waits longer before another is opened: the connections that are in use may be dead."""


class PatientPool(AsyncAdaptedQueuePool):
    """While all its connections are in use, it waits a moment for one of them before it opens another one."""

    _waited_s = 0.0  # by those that got one, since another one was opened
    _opened_at = 0.0

    def _do_get(self) -> ConnectionPoolEntry:
        begun = time.monotonic()
        while self.checkedin() == 0 and 0 < self.checkedout() < self.size():
            until = min(max(begun, self._opened_at) + WORTH_S - self._waited_s, begun + LONGEST_S)
            left_s = until - time.monotonic()
            if left_s <= 0:
                self._waited_s, self._opened_at = 0.0, time.monotonic()
                break
            with suppress(Empty):
                returned = self._pool.get(True, left_s)
                self._waited_s += time.monotonic() - begun
                return returned
        return super()._do_get()
