"""The periodic comparison of the ledger's reservations with the cluster's pods: it repairs what any lost message left.

Rows are read before pods are listed, so a pod that is missing from the list was missing after its row said that it
should exist; and a pod without a row is checked against the row once more before it is called an orphan.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.domain.model import JobStatus, PodName, PodPhase, PodStatus, Reservation
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.transactions import UnitOfWorkFactory
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.observe import disown, observe

# What can be news to a row of this status; the rest is as it should be, and not worth locking the row.
_NEWS = {
    JobStatus.STARTING: (PodPhase.RUNNING, PodPhase.FINISHED),
    JobStatus.RUNNING: (PodPhase.FINISHED,),
}


@dataclass(frozen=True, slots=True)
class ResyncRules:
    """How long a row may stay behind before its operation is sent again, the grace for orphans, and the belt.

    `max_starts` is how often a reservation whose pods can't start is tried.
    """

    starting_patience: timedelta
    ending_patience: timedelta
    grace: timedelta
    belt: timedelta
    max_starts: int


@dataclass(frozen=True, slots=True)
class ResyncReport:
    """What was out of step."""

    resent: int = 0
    orphans: int = 0
    observed: int = 0


class Resync:
    """Compares again and again; remembers only which deadlines it has told the cluster."""

    def __init__(self, uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, rules: ResyncRules) -> None:
        self._uow = uow_factory
        self._cluster = cluster
        self._clock = clock
        self._rules = rules
        self._deadlines: dict[str, datetime] = {}

    async def once(self) -> ResyncReport:
        """Compare once and repair. Raises ClusterUnavailableError without having concluded anything."""
        now = self._clock.now()
        async with self._uow() as uow:
            live = {row.id: row for row in await uow.reservations.live()}
            late = set(
                await uow.reservations.stuck(
                    starting_before=now - self._rules.starting_patience,
                    ending_before=now - self._rules.ending_patience,
                    limit=10_000,
                )
            )
        listing = await self._cluster.list_pods()
        pods: dict[str, list[PodStatus]] = {}
        for status in listing.pods:
            pods.setdefault(status.name.reservation_id, []).append(status)

        seen, resend = _compare(live.values(), pods, late)
        await observe(self._uow, self._cluster, seen, self._clock, self._rules.max_starts)
        resent = 0
        if resend:
            async with self._uow() as uow:
                resent = await uow.reservations.resend(resend)
                uow.wake(Channel.POD_OPERATIONS)
        await self._tell_deadlines(live.values())
        orphans = 0
        for status in listing.pods:
            row = live.get(status.name.reservation_id)
            if row is None or row.attempt != status.name.attempt:
                orphans += await self._remove_orphan(status)
        return ResyncReport(resent, orphans, len(seen))

    async def _tell_deadlines(self, live: Iterable[Reservation]) -> None:
        """The cluster's belts follow the rows, whatever became of the message that said so."""
        told: dict[str, datetime] = {}
        for row in live:
            if row.status is not JobStatus.RUNNING or row.range_end is None:
                continue
            if self._deadlines.get(row.id) != row.range_end:
                for rank in range(row.nodes):
                    name = str(PodName(row.id, row.attempt, rank))
                    await self._cluster.extend_deadline(name, row.range_end + self._rules.belt)
            told[row.id] = row.range_end
        self._deadlines = told

    async def _remove_orphan(self, status: PodStatus) -> bool:
        async with self._uow() as uow:
            orphaned = await disown(uow, status, self._clock)
        if orphaned:
            # No create can bring it back: its row is final, gone, or at another attempt.
            await self._cluster.delete_pod(str(status.name), self._rules.grace)
        return orphaned


def _compare(
    live: Iterable[Reservation], pods: Mapping[str, Sequence[PodStatus]], late: Collection[str]
) -> tuple[list[PodStatus], list[str]]:
    """What there is to observe (a missing pod counts as seen gone), and whose operation has to be sent again."""
    seen: list[PodStatus] = []
    resend: list[str] = []
    for row in live:
        own = {p.name: p for p in pods.get(row.id, ()) if p.name.attempt == row.attempt}
        wanted = [PodName(row.id, row.attempt, rank) for rank in range(row.nodes)]
        missing = [name for name in wanted if name not in own]
        # And whoever doesn't start, or is being taken away, says why.
        seen += [
            p for p in own.values() if p.phase in (news := _NEWS.get(row.status, ())) or (p.reason is not None and news)
        ]
        if row.status is JobStatus.STARTING and missing and row.id in late:
            resend.append(row.id)
        elif row.status is JobStatus.RUNNING:
            seen += [PodStatus(name, PodPhase.GONE) for name in missing]
        elif row.status is JobStatus.ENDING and not pods.get(row.id):
            seen.append(PodStatus(wanted[0], PodPhase.GONE))
        elif row.status is JobStatus.ENDING and row.id in late:
            resend.append(row.id)
    return seen, resend
