"""Creating pods so that none comes to be behind our back.

A create that was not answered may still be carried out: by a slow server, or from a network that delivers late. Its row
remembers until when, and its cards are not let go before that (see `lifecycle`), whatever a look at the cluster says
meanwhile. That is written down only where it matters, and before its pod lock is let go: for a create that takes long,
while it does, so that the death of this process changes nothing; for one that was given up, at its end.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import HeldPods
from reservation_core.domain.model import PodName, PodSpec
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, PodNotNowError, PodRefusedError
from reservation_core.usecases.running.pod_calls import PodCall, call_all


class PodCreation:
    """Creates under held pod locks. `late` is how long after it was begun a create may still be carried out at most.

    Zero means that nothing is carried out once it was given up.
    """

    def __init__(
        self, held: HeldPods, cluster: Cluster, clock: Clock, *, late: timedelta, slow_after: timedelta
    ) -> None:
        self._held = held
        self._cluster = cluster
        self._clock = clock
        self._late = late
        self._slow_after = slow_after
        self._unanswered: set[PodName] = set()
        self._former: dict[str, datetime | None] = {}  # what the rows said before we noted anything

    async def create(self, spec: PodSpec) -> None:
        """Create one pod, as a part of `all`. Raises PodRefusedError, PodNotNowError, ClusterUnavailableError."""
        lost: list[bool] = []
        self._unanswered.add(spec.name)
        try:
            await self._cluster.create_pod(spec, lambda: lost.append(True))
        except (PodRefusedError, PodNotNowError):
            self._answered(spec.name, lost)
            raise
        self._answered(spec.name, lost)

    async def all(self, calls: Sequence[PodCall]) -> None:
        """Make calls that create, as `call_all` does, and write down which were not answered."""
        try:
            await call_all(calls, slow_after=self._slow_after, while_slow=self._note)
        finally:
            await self._settle()

    def _answered(self, name: PodName, lost: Sequence[bool]) -> None:
        # Of several tries, the one that was answered may not be the last that is carried out.
        if not lost:
            self._unanswered.discard(name)

    async def _note(self) -> None:
        if not self._late:
            return
        waiting = {name.reservation_id for name in self._unanswered}
        if waiting:
            async with self._held.work(one_statement=True) as uow:
                former = await uow.reservations.unsettle(sorted(waiting), self._clock.now() + self._late)
            self._former = {**former, **self._former}

    async def _settle(self) -> None:
        await self._note()
        waiting = {name.reservation_id for name in self._unanswered}
        answered = {
            reservation_id: former for reservation_id, former in self._former.items() if reservation_id not in waiting
        }
        if answered:
            async with self._held.work(one_statement=True) as uow:
                await uow.reservations.settle(answered)
