"""Convert times in the files of local pods to the ledger's time and back.

Supervisors have no database, and the machine's clock may be set while they run. They therefore also write times as
seconds since boot, which count during the same boot.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from reservation_core.adapters.boot_time import seconds_since_boot
from reservation_core.adapters.local.kernel import boot_id
from reservation_core.ports.clock import Clock

_REMEMBERED = 100_000


class MachineTimes:
    """Converts between this machine's times and those of `ledger`."""

    def __init__(self, machine: Clock, ledger: Clock, counted: Callable[[], float] = seconds_since_boot) -> None:
        self._machine = machine
        self._ledger = ledger
        self._counted = counted
        self._boot_id = boot_id()
        # Cached, so that the same file always gives the same time.
        self._since_boot = lru_cache(maxsize=_REMEMBERED)(self._by_count)

    def ledger_time(self, times: Mapping[str, Any], name: str) -> datetime | None:
        """The ledger's time of `name` in a supervisor's file; None where it is missing."""
        if times.get(name) is None:
            return None
        counted = times.get(f"{name}_boot")
        if counted is None or self._boot_id is None or times.get("boot_id") != self._boot_id:
            return datetime.fromtimestamp(times[name], UTC)
        return self._since_boot(counted)

    def machine_time(self, at: datetime) -> tuple[float, float]:
        """A time of the ledger in seconds since 1970 and in seconds since boot."""
        left = at - self._ledger.now()
        return (self._machine.now() + left).timestamp(), self._counted() + left.total_seconds()

    def _by_count(self, counted: float) -> datetime:
        return self._ledger.now() - timedelta(seconds=self._counted() - counted)
