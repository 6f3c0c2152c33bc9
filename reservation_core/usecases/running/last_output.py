"""Keep what pods print between the request to end and their end, if the cluster loses a log with its pod.

The object of a pod that is being deleted goes with its container, and the log with both. So the log is followed from
the deletion until the container has ended. A process that stops meanwhile loses this, and nothing else.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from functools import partial

import structlog

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.model import PodName
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.jobs.pod_logs import KeptLog
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.usecases.running.keep_log_tails import read_tail

_AT_ONCE = 64
_BEYOND_GRACE = timedelta(seconds=10)
_log = structlog.get_logger(__name__)


class LastOutput:
    """Follows the logs of pods that are asked to end, of 64 at once; `close` gives the others up."""

    def __init__(self, uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, lines: int) -> None:
        self._uow_factory = uow_factory
        self._cluster = cluster
        self._clock = clock
        self._lines = lines
        self._readers: dict[PodName, asyncio.Task[None]] = {}

    def follow(self, names: Iterable[PodName], grace: timedelta) -> None:
        """Follow the logs of running pods, before they are deleted."""
        if not self._lines or not self._cluster.forgets_logs:
            return
        new = [name for name in names if name not in self._readers]
        room = _AT_ONCE - len(self._readers)
        for name in new[:room]:
            self._readers[name] = asyncio.create_task(self._keep(name, grace + _BEYOND_GRACE))
            self._readers[name].add_done_callback(partial(self._forget, name))
        if len(new) > room:
            _log.warning("last_output_not_followed", pods=len(new) - room, followed_at_once=_AT_ONCE)

    async def close(self) -> None:
        """Stop reading."""
        readers = [*self._readers.values()]
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    def _forget(self, name: PodName, _reader: "asyncio.Task[None]") -> None:
        del self._readers[name]

    async def _keep(self, name: PodName, patience: timedelta) -> None:
        until = asyncio.get_running_loop().time() + patience.total_seconds()
        tail = await read_tail(self._cluster, name, self._lines, until, follow=True)
        if tail is None:
            return  # what was read before the deletion stays
        try:
            async with self._uow_factory() as uow:
                await uow.pod_logs.keep([KeptLog(name, tail, complete=True)], self._clock.now())
        except DatabaseUnavailableError as error:
            _log.warning("last_output_not_kept", pod=str(name), error=str(error))
