"""The database's clock, as a process reads it between two questions to the database.

Components run on several machines whose clocks differ and are set now and then; what is due for one must be due for
all. So the time is asked of the database, and from then on only counted: a step of a machine's clock changes nothing.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from reservation_core.adapters.postgres.driver_errors import told_as_unavailable
from reservation_core.ports.clock import Clock

ASK_EVERY_S = 30.0
"""How often the database is asked what time it is."""
_QUESTIONS = 3
_WORTH_SAYING = timedelta(seconds=5)
_log = structlog.get_logger(__name__)


def seconds_since_boot() -> float:
    """A clock that nobody sets, which goes on while the machine sleeps where there is such a one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SharedClock:
    """See ports.clock.Clock. Until the database has answered once, it is the machine's own clock, read at the start."""

    def __init__(self, engine: AsyncEngine, machine: Clock, counted: Callable[[], float] = seconds_since_boot) -> None:
        self._engine = engine
        self._counted = counted
        self._at = counted()
        self._then = machine.now()

    def now(self) -> datetime:
        """The current time, UTC."""
        return self._then + timedelta(seconds=self._counted() - self._at)

    async def ask(self) -> None:
        """Ask the database what time it is; of several answers the one that came soonest counts.

        Raises DatabaseUnavailableError; the time goes on as it was then.
        """
        best: tuple[float, float, datetime] | None = None
        with told_as_unavailable() as reached:
            async with self._engine.connect() as connection:
                reached.connected = True
                for _ in range(_QUESTIONS):
                    before = self._counted()
                    then: datetime = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
                    took = self._counted() - before
                    if best is None or took < best[0]:
                        best = (took, before + took / 2, then.astimezone(UTC))
        if best is not None:
            _, at, then = best
            off = then + timedelta(seconds=self._counted() - at) - self.now()
            if abs(off) >= _WORTH_SAYING:
                _log.warning("the database's clock is another; its time counts", off_s=round(off.total_seconds(), 1))
            self._at, self._then = at, then
