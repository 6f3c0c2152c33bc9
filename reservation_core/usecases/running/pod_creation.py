"""Create pods such that no pod appears unnoticed later.

An unanswered create may still be carried out, by a slow server or a slow network. Its row stores until when, and its
GPUs are not freed before that (see `lifecycle`), whatever the cluster shows. The time is stored before the pod lock is
released: during a slow create, so that the process may be killed, and after a create that was given up.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import HeldPods
from reservation_core.domain.model import PodName, PodSpec
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, PodNotNowError, PodRefusedError
from reservation_core.usecases.running.pod_calls import PodCall, call_all


class PodCreation:
    """Creates pods under held pod locks. `late` is how long after its begin a create may still be carried out.

    Zero means that a create is never carried out after it was given up.
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
        self._former: dict[str, datetime | None] = {}  # the rows' values before our changes

    async def create(self, spec: PodSpec) -> None:
        """Create one pod, as a part of `all`. Raises PodRefusedError, PodNotNowError, ClusterUnavailableError."""
        lost: list[bool] = []
        self._unanswered.add(spec.name)
        try:
            await self._cluster.create_pod(spec, lambda: lost.append(True))
        except (PodRefusedError, PodNotNowError):
            self._note_answer(spec.name, lost)
            raise
        self._note_answer(spec.name, lost)

    async def all(self, calls: Sequence[PodCall]) -> None:
        """Make creating calls as `call_all` does, and store which were not answered."""
        try:
            await call_all(calls, slow_after=self._slow_after, while_slow=self._store_unanswered)
        finally:
            await self._settle()

    def _note_answer(self, name: PodName, lost: Sequence[bool]) -> None:
        # After several attempts, an unanswered one may still be carried out after the answered one.
        if not lost:
            self._unanswered.discard(name)

    async def _store_unanswered(self) -> None:
        if not self._late:
            return
        waiting = {name.reservation_id for name in self._unanswered}
        if waiting:
            async with self._held.work(one_statement=True) as uow:
                former = await uow.reservations.unsettle(sorted(waiting), self._clock.now() + self._late)
            self._former = {**former, **self._former}

    async def _settle(self) -> None:
        await self._store_unanswered()
        waiting = {name.reservation_id for name in self._unanswered}
        answered = {
            reservation_id: former for reservation_id, former in self._former.items() if reservation_id not in waiting
        }
        if answered:
            async with self._held.work(one_statement=True) as uow:
                await uow.reservations.settle(answered)
