"""Wait, at the start of a program, for a database or a cluster that does not answer yet."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from reservation_core.adapters.clock import SystemClock
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.loops.backoff import Backoff, pause

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
LOGGED_AGAIN_S = 30.0

_NOT_YET = (DatabaseUnavailableError, ClusterUnavailableError)
_log = structlog.get_logger(__name__)
T = TypeVar("T")


class StoppedError(Exception):
    """The program was stopped before it had started."""


async def wait_for_start(
    act: Callable[[], Awaitable[T]], *, stop: asyncio.Event | None = None, longest_s: float | None = None
) -> T:
    """Repeat `act` until the database and the cluster answer, and return its result.

    Logs at the beginning of the wait, every LOGGED_AGAIN_S seconds, and at its end. Raises StoppedError once `stop`
    is set, and the last error of `act` after `longest_s` seconds.
    """
    clock = asyncio.get_running_loop().time
    begun, since = clock(), SystemClock().now()
    backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    log_at = begun
    while True:
        if stop is not None and stop.is_set():
            raise StoppedError
        try:
            answer = await act()
        except _NOT_YET as error:
            if longest_s is not None and clock() - begun >= longest_s:
                raise
            if clock() >= log_at:
                log_at = clock() + LOGGED_AGAIN_S
                _log.warning("waiting to start", since=since.strftime("%Y-%m-%dT%H:%M:%SZ"), error=str(error))
        else:
            if log_at > begun:
                _log.info("the start goes on", waited_s=round(clock() - begun, 1))
            return answer
        await pause(backoff.next(), stop)
