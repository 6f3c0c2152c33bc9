"""Signals to programs in pods, each of which is a process group."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from reservation_core.domain.model import PodName
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.sessions.pod_streams import PodNotReachableError, SignalRefusedError

_SEND_S = 30.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0

SendSignals = Callable[[PodName, Collection[int], tuple[str, ...]], Awaitable[None]]


class HangUps:
    """Hangs programs up with one exec for a pod at a time, which hangs up all that are due by then.

    A hundred execs at once, while as many programs end, blocked containerd 1.6 for that pod. While a pod can't be
    reached, such as when its kubelet is restarted, or does not answer, its programs are tried again until the pod has
    ended.
    """

    def __init__(self, send_signals: SendSignals) -> None:
        self._send_signals = send_signals
        self._due: dict[PodName, dict[int, asyncio.Future[None]]] = {}
        self._working: dict[PodName, asyncio.Task[None]] = {}

    async def hang_up(self, pod: PodName, group: int) -> None:
        """Send SIGHUP, and SIGCONT to what is stopped. Returns when it was sent, or the pod has ended.

        A caller that waits no longer changes nothing.
        """
        sent = asyncio.get_running_loop().create_future()
        self._due.setdefault(pod, {})[group] = sent
        if pod not in self._working:
            self._working[pod] = asyncio.create_task(self._work(pod))
        await sent

    async def close(self) -> None:
        """Hang no more programs up."""
        working = [*self._working.values()]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    async def _work(self, pod: PodName) -> None:
        pause_s = _FIRST_PAUSE_S
        due: dict[int, asyncio.Future[None]] | None = None
        try:
            while due := self._due.pop(pod, None):
                try:
                    async with asyncio.timeout(_SEND_S):
                        await self._send_signals(pod, due, ("HUP", "CONT"))
                except (ClusterUnavailableError, TimeoutError):
                    self._due[pod] = due | self._due.get(pod, {})
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                    continue
                except (PodNotReachableError, SignalRefusedError):
                    pass  # there is nothing left to hang up
                _settle(due)
        finally:
            del self._working[pod]
            _settle((due or {}) | self._due.pop(pod, {}))  # after a failure, too, nobody waits for ever


def _settle(due: Mapping[int, "asyncio.Future[None]"]) -> None:
    for sent in due.values():
        if not sent.done():
            sent.set_result(None)


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
        """As HangUps has it."""
        await self.hang_ups.hang_up(self.pod, self.number)
