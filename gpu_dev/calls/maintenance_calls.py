"""Maintenance windows over REST."""

from collections.abc import Iterator
from urllib.parse import quote

from gpu_dev.calls.calls import Calls
from gpu_dev.wire.base import Page
from gpu_dev.wire.maintenance import MaintenanceCreate, MaintenanceOut

_PATH = "/v1/maintenance"


class MaintenanceCalls(Calls):
    """Windows in which GPUs are out of use. Changes are for administrators only."""

    def plan(self, request: MaintenanceCreate) -> MaintenanceOut:
        """Plan a window, or with `dry_run` only preview its effects."""
        return self._post(MaintenanceOut, _PATH, request)

    def windows(self) -> Iterator[MaintenanceOut]:
        """The planned and open windows."""
        return self._items(Page[MaintenanceOut], _PATH)

    def cancel(self, window_id: str) -> MaintenanceOut:
        """Cancel a window, or end it early."""
        return self._change("DELETE", MaintenanceOut, f"{_PATH}/{quote(window_id, safe='')}")
