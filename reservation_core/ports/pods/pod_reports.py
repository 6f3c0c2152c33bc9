"""Pods of others that use bookings."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from reservation_core.domain.pods.pod_reports import Admission, BookedSlot, PodReport


class Admissions(Protocol):
    """Which pods were admitted under which bookings."""

    async def hold(self, reports: Sequence[PodReport], now: datetime) -> list[str]:
        """Keep the bookings that these pods may use from being changed until the transaction ends; answers their ids.

        Those that are named, and of pods that name none what their users have or had within the last day. Reports are
        taken in one after the other: who comes second waits.
        """
        ...

    async def slots(self, booking_ids: Sequence[str]) -> list[BookedSlot]:
        """What these bookings have or had in the ledger; nothing of those that were never confirmed."""
        ...

    async def of_pods(self, uids: Sequence[str]) -> list[Admission]:
        """What is recorded of some pods."""
        ...

    async def write(self, new: Sequence[Admission], ended: Sequence[Admission], actor: str, now: datetime) -> None:
        """Write the ends of rows, then new rows, and the record of the bookings."""
        ...
