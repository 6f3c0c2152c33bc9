"""Times in the files of local pods, and the ledger's time.

Supervisors can't ask the database, and the machine's clock may be set while they run. So they note when something
happened, and when a pod has to end, in seconds since the boot as well; these count as long as it is the same boot.
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
    """Translates between this machine's times and the ledger's, which `ledger` tells."""

    def __init__(self, machine: Clock, ledger: Clock, counted: Callable[[], float] = seconds_since_boot) -> None:
        self._machine = machine
        self._ledger = ledger
        self._counted = counted
        self._boot_id = boot_id()
        # What was told once is told again: whoever compares must not see a change.
        self._since_boot = lru_cache(maxsize=_REMEMBERED)(self._by_count)

    def ledger_time(self, said: Mapping[str, Any], name: str) -> datetime | None:
        """When something was: `name` in what a supervisor wrote, or None where it was not."""
        if said.get(name) is None:
            return None
        counted = said.get(f"{name}_boot")
        if counted is None or self._boot_id is None or said.get("boot_id") != self._boot_id:
            return datetime.fromtimestamp(said[name], UTC)
        return self._since_boot(counted)

    def machine_time(self, at: datetime) -> tuple[float, float]:
        """A time of the ledger's in seconds since 1970 and in seconds since the boot."""
        left = at - self._ledger.now()
        return (self._machine.now() + left).timestamp(), self._counted() + left.total_seconds()

    def _by_count(self, counted: float) -> datetime:
        return self._ledger.now() - timedelta(seconds=self._counted() - counted)
