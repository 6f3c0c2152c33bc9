"""Maintenance windows over REST."""

from collections.abc import Iterator
from urllib.parse import quote

from gpu_dev.calls.calls import Calls
from reservation_core.contracts.base import Page
from reservation_core.contracts.maintenance import MaintenanceCreate, MaintenanceOut

_PATH = "/v1/maintenance"


class MaintenanceCalls(Calls):
    """Windows in which nobody has certain cards (administrators only, but for looking)."""

    def plan(self, request: MaintenanceCreate) -> MaintenanceOut:
        """Plan a window, or with `dry_run` only hear whom it would affect."""
        return self._post(MaintenanceOut, _PATH, request)

    def windows(self) -> Iterator[MaintenanceOut]:
        """Those planned and under way."""
        return self._items(Page[MaintenanceOut], _PATH)

    def cancel(self, window_id: str) -> MaintenanceOut:
        """Call a window off, or end it early."""
        return self._change("DELETE", MaintenanceOut, f"{_PATH}/{quote(window_id, safe='')}")
