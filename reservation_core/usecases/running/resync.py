"""The periodic comparison of the ledger's reservations with the cluster's pods: it repairs what any lost message left.

Rows are read before pods are listed, so a pod that is missing from the list was missing after its row said that it
should exist. Pods that no live row wants are accounted for in `adopt`; what holds cards of fenced nodes is ended.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.jobs.adoption import PodStanding, standing
from reservation_core.domain.model import JobStatus, PodName, PodPhase, PodStatus, Reservation
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.nodes.fence_node import end_cut_off
from reservation_core.usecases.running.adopt import AccountReport, AccountRules, Accounts
from reservation_core.usecases.running.observe import observe

OBSERVED_AT_ONCE = 200

# What can be news to a row of this status; the rest is as it should be, and not worth locking the row.
_NEWS = {
    JobStatus.STARTING: (PodPhase.RUNNING, PodPhase.FINISHED),
    JobStatus.RUNNING: (PodPhase.FINISHED,),
}


@dataclass(frozen=True, slots=True)
class ResyncRules:
    """How long a row may stay behind before its operation is sent again, the grace for orphans, and the belt.

    `max_starts` is how often a reservation whose pods can't start is tried, `end_unknown` whether pods that the ledger
    doesn't know are ended without anybody's word.
    """

    starting_patience: timedelta
    ending_patience: timedelta
    grace: timedelta
    belt: timedelta
    max_starts: int
    end_unknown: bool = False


@dataclass(frozen=True, slots=True)
class ResyncReport:
    """What was out of step."""

    resent: int = 0
    orphans: int = 0
    observed: int = 0
    unknown: int = 0
    adopted: int = 0
    cut_off: int = 0


class Resync:
    """Compares again and again; remembers only which deadlines it has told the cluster."""

    def __init__(self, uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, rules: ResyncRules) -> None:
        self._uow = uow_factory
        self._cluster = cluster
        self._clock = clock
        self._rules = rules
        self._accounts = Accounts(uow_factory, cluster, clock, AccountRules(rules.grace, rules.end_unknown))
        self._deadlines: dict[str, datetime] = {}

    async def account(self) -> ResyncReport:
        """Only account for pods that no live row wants: what a planner has to know before its first plan.

        A ledger from a backup may take cards for free that pods hold. Raises ClusterUnavailableError.
        """
        async with self._uow() as uow:
            live = {row.id: row for row in await uow.reservations.live()}
        there = (await self._cluster.list_pods()).pods
        found = await self._account(live, there, besides=(PodStanding.KNOWN, PodStanding.LEFT_OVER))
        return _report(found, ResyncReport())

    async def once(self) -> ResyncReport:
        """Compare once and repair. Raises ClusterUnavailableError without having concluded anything from it."""
        now = self._clock.now()
        cut_off = await end_cut_off(self._uow, self._clock, self._rules.max_starts)
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
        await self._tell_deadlines(live.values())
        found = await self._account(live, listing.pods, besides=(PodStanding.KNOWN,))
        return _report(found, ResyncReport(resent=resent, observed=len(seen), cut_off=cut_off))

    async def _account(
        self, live: Mapping[str, Reservation], there: Sequence[PodStatus], *, besides: Collection[PodStanding]
    ) -> AccountReport:
        """Account for all pods `besides` those of these standings."""
        unaccounted = [
            pod
            for pod in there
            if (row := live.get(pod.name.reservation_id)) is None or row.attempt != pod.name.attempt
        ]
        if unaccounted:
            # Most have come since the rows were read: one look at the rows as they are now spares a look at each.
            async with self._uow() as uow:
                rows = await uow.reservations.get(sorted({pod.name.reservation_id for pod in unaccounted}))
            unaccounted = [
                pod
                for pod in unaccounted
                if standing(rows.get(pod.name.reservation_id), pod.name.attempt) not in besides
            ]
        found = await self._accounts.settle(there, unaccounted)
        # They were taken up as starting; what has become of them since is the next thing to know.
        await self._observe(found.adopted)
        return found

    async def _observe(self, seen: Sequence[PodStatus]) -> None:
        """A part at a time: what seems to be gone is locked while the cluster is asked about it, row after row."""
        for first in range(0, len(seen), OBSERVED_AT_ONCE):
            part = seen[first : first + OBSERVED_AT_ONCE]
            await observe(self._uow, self._cluster, part, self._clock, self._rules.max_starts, self._rules.grace)

    async def _tell_deadlines(self, live: Iterable[Reservation]) -> None:
        """The cluster's belts follow the rows, whatever became of the message that said so."""
        running = {row.id: row for row in live if row.status is JobStatus.RUNNING}
        self._deadlines = {row_id: told for row_id, told in self._deadlines.items() if row_id in running}
        for row in running.values():
            if row.range_end is None or self._deadlines.get(row.id) == row.range_end:
                continue
            for rank in range(row.nodes):
                name = str(PodName(row.id, row.attempt, rank))
                await self._cluster.extend_deadline(name, row.range_end + self._rules.belt)
            # At once: after a cluster that falls silent between two of thousands, the next time goes on from here.
            self._deadlines[row.id] = row.range_end


def _report(found: AccountReport, rest: ResyncReport) -> ResyncReport:
    return replace(rest, orphans=found.removed + found.ended, unknown=found.reported, adopted=len(found.adopted))


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
