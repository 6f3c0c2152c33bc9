"""Signals to programs in pods, each of which is a process group."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from weakref import WeakValueDictionary

from reservation_core.domain.model import PodName

SendSignals = Callable[[PodName, Collection[int], tuple[str, ...]], Awaitable[None]]


class HangUps:
    """Hangs programs up with one exec for a pod at a time, which hangs up all that are due by then.

    A hundred execs at once, while as many programs end, blocked containerd 1.6 for that pod.
    """

    def __init__(self, send_signals: SendSignals) -> None:
        self._send_signals = send_signals
        self._due: dict[PodName, set[int]] = {}
        self._turns: WeakValueDictionary[PodName, asyncio.Lock] = WeakValueDictionary()

    async def hang_up(self, pod: PodName, group: int) -> None:
        """Send SIGHUP, and SIGCONT to what is stopped. Returns when it was sent, here or by another call."""
        self._due.setdefault(pod, set()).add(group)
        turn = self._turns.setdefault(pod, asyncio.Lock())
        async with turn:
            if group in self._due.get(pod, ()):
                await self._send_signals(pod, self._due.pop(pod), ("HUP", "CONT"))


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The process group of one program."""

    pod: PodName
    number: int
    send_signals: SendSignals
    hang_ups: HangUps

    async def send_signal(self, name: str) -> None:
        """Raises SignalRefusedError, PodNotReachableError and ClusterUnavailableError."""
        await self.send_signals(self.pod, (self.number,), (name,))

    async def hang_up(self) -> None:
        """Raises as `send_signal` does."""
        await self.hang_ups.hang_up(self.pod, self.number)
