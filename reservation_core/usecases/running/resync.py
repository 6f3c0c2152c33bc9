"""Compare the ledger's reservations with the cluster's pods regularly, to repair the effects of lost messages.

Rows are read before pods are listed, so a pod that the list lacks was missing after its row required it. `adopt`
accounts for pods that no live row wants; reservations on fenced nodes are ended.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.jobs.adoption import PodStanding, standing
from reservation_core.domain.model import PodName, PodPhase, PodStatus, Reservation
from reservation_core.domain.pods.pod_environment import last_end
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.traces import Traces
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.nodes.fence_node import end_fenced_reservations
from reservation_core.usecases.running.adopt import AccountReport, AccountRules, Accounts
from reservation_core.usecases.running.observe import observe

OBSERVED_AT_ONCE = 200

# The phases that change a row of this status; others are expected, and not worth locking the row.
_NEWS = {JobStatus.STARTING: (PodPhase.RUNNING, PodPhase.FINISHED), JobStatus.RUNNING: (PodPhase.FINISHED,)}


@dataclass(frozen=True, slots=True)
class ResyncRules:
    """How long a row may lag before its operation is sent again, the grace for orphans, and the belt.

    `max_starts` is the number of start attempts, `end_unknown` whether unknown pods are ended automatically.
    """

    starting_patience: timedelta
    ending_patience: timedelta
    grace: timedelta
    belt: timedelta
    max_starts: int
    end_unknown: bool = False


@dataclass(frozen=True, slots=True)
class ResyncReport:
    """The numbers of repairs."""

    resent: int = 0
    orphans: int = 0
    observed: int = 0
    unknown: int = 0
    adopted: int = 0
    cut_off: int = 0


class Resync:
    """Compares repeatedly; remembers only the deadlines that it has sent to the cluster."""

    def __init__(
        self,
        uow_factory: UnitOfWorkFactory,
        cluster: Cluster,
        clock: Clock,
        rules: ResyncRules,
        traces: Traces | None = None,
    ) -> None:
        self._uow = uow_factory
        self._cluster = cluster
        self._clock = clock
        self._rules = rules
        self._traces = traces
        self._accounts = Accounts(uow_factory, cluster, clock, AccountRules(rules.grace, rules.end_unknown))
        self._deadlines: dict[str, datetime] = {}

    async def account(self) -> ResyncReport:
        """Account for pods that no live row wants, before a planner's first plan.

        A restored ledger may show GPUs as free that pods hold. Raises ClusterUnavailableError.
        """
        async with self._uow() as uow:
            live = {row.id: row for row in await uow.reservations.live()}
        there = (await self._cluster.list_pods()).pods
        accounted = await self._account(live, there, besides=(PodStanding.KNOWN, PodStanding.LEFT_OVER))
        return _report(accounted, ResyncReport())

    async def once(self) -> ResyncReport:
        """Compare once and repair. Raises ClusterUnavailableError."""
        now = self._clock.now()
        cut_off = await end_fenced_reservations(self._uow, self._clock, self._rules.max_starts)
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
        await self._observe(seen)
        resent = 0
        if resend:
            async with self._uow() as uow:
                resent = await uow.reservations.resend(resend)
                uow.wake(Channel.POD_OPERATIONS)
        await self._send_deadlines(live.values())
        accounted = await self._account(live, listing.pods, besides=(PodStanding.KNOWN,))
        return _report(accounted, ResyncReport(resent=resent, observed=len(seen), cut_off=cut_off))

    async def _account(
        self, live: Mapping[str, Reservation], there: Sequence[PodStatus], *, besides: Collection[PodStanding]
    ) -> AccountReport:
        """Account for all pods except those with the standings `besides`."""
        unaccounted = [
            pod
            for pod in there
            if (row := live.get(pod.name.reservation_id)) is None or row.attempt != pod.name.attempt
        ]
        if unaccounted:
            # Most were created since the rows were read: reading the rows again together avoids judging these pods.
            async with self._uow() as uow:
                rows = await uow.reservations.get(sorted({pod.name.reservation_id for pod in unaccounted}))
            unaccounted = [
                pod
                for pod in unaccounted
                if standing(rows.get(pod.name.reservation_id), pod.name.attempt) not in besides
            ]
        accounted = await self._accounts.settle(there, unaccounted)
        # Adopted pods count as starting; their current state is the next thing to observe.
        await self._observe(accounted.adopted)
        return accounted

    async def _observe(self, seen: Sequence[PodStatus]) -> None:
        """Observe in parts: rows of missing pods stay locked while the cluster is asked about them."""
        for first in range(0, len(seen), OBSERVED_AT_ONCE):
            part = seen[first : first + OBSERVED_AT_ONCE]
            rules = self._rules
            await observe(self._uow, self._cluster, part, self._clock, rules.max_starts, rules.grace, self._traces)

    async def _send_deadlines(self, live: Iterable[Reservation]) -> None:
        """Send changed deadlines to the cluster, in case a message was lost."""
        running = {row.id: row for row in live if row.status is JobStatus.RUNNING}
        self._deadlines = {row_id: sent for row_id, sent in self._deadlines.items() if row_id in running}
        for row in running.values():
            last = last_end(row)
            if last is None or self._deadlines.get(row.id) == last:
                continue
            for rank in range(row.nodes):
                name = str(PodName(row.id, row.attempt, rank))
                await self._cluster.extend_deadline(name, last + self._rules.belt)
            # Stored per row: after an outage in the middle of thousands, the next run continues from here.
            self._deadlines[row.id] = last


def _report(accounted: AccountReport, rest: ResyncReport) -> ResyncReport:
    orphans = accounted.removed + accounted.ended
    return replace(rest, orphans=orphans, unknown=accounted.reported, adopted=len(accounted.adopted))


def _compare(
    live: Iterable[Reservation], pods: Mapping[str, Sequence[PodStatus]], late: Collection[str]
) -> tuple[list[PodStatus], list[str]]:
    """Statuses to observe (a missing pod counts as gone), and reservations whose operation must be sent again."""
    seen: list[PodStatus] = []
    resend: list[str] = []
    for row in live:
        own = {p.name: p for p in pods.get(row.id, ()) if p.name.attempt == row.attempt}
        wanted = [PodName(row.id, row.attempt, rank) for rank in range(row.nodes)]
        missing = [name for name in wanted if name not in own]
        # Pods that don't start or are being removed have a reason.
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
