"""The last lines of pods whose cluster forgets their logs with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.domain.model import PodName

LONGEST_TAIL = 2**20
"""How many bytes of a pod's log are kept at most."""


@dataclass(frozen=True, slots=True)
class KeptLog:
    """The end of a pod's log, at most LONGEST_TAIL bytes.

    `complete`: the pod had finished when it was read, or nothing better is to be expected.
    """

    pod: PodName
    tail: bytes
    complete: bool


class PodLogs(Protocol):
    """Ends of logs, kept for a while after their pods are gone."""

    async def kept(self, pods: Sequence[PodName]) -> dict[PodName, bool]:
        """Of which of these pods something was kept, and whether that is complete."""
        ...

    async def keep(self, logs: Sequence[KeptLog], now: datetime) -> None:
        """Store the ends of logs. What is complete is not written again; an empty tail never replaces another."""
        ...

    async def tail(self, pod: PodName) -> bytes | None:
        """What was kept of one pod's log; None when nothing was, or no longer is."""
        ...
