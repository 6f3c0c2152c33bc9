"""The periodic comparison of the ledger's reservations with the cluster's pods: it repairs what any lost message left.

Rows are read before pods are listed, so a pod that is missing from the list was missing after its row said that it
should exist; and a pod without a row is checked against the row once more before it is called an orphan.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from reservation_core.domain.model import JobStatus, PodName, PodPhase, PodStatus, Reservation
from reservation_core.ports import Channel, Clock, Cluster, UnitOfWorkFactory
from reservation_core.usecases.observe import disown, observe


@dataclass(frozen=True, slots=True)
class ResyncRules:
    """How long a row may stay behind before its operation is sent again, and the grace for orphans."""

    starting_patience: timedelta
    ending_patience: timedelta
    grace: timedelta


@dataclass(frozen=True, slots=True)
class ResyncReport:
    """What was out of step."""

    resent: int = 0
    orphans: int = 0
    observed: int = 0


async def resync(uow_factory: UnitOfWorkFactory, cluster: Cluster, clock: Clock, rules: ResyncRules) -> ResyncReport:
    """Compare once and repair. Raises ClusterUnavailableError without having concluded anything."""
    now = clock.now()
    async with uow_factory() as uow:
        live = {row.id: row for row in await uow.reservations.live()}
        late = set(
            await uow.reservations.stuck(
                starting_before=now - rules.starting_patience, ending_before=now - rules.ending_patience, limit=10_000
            )
        )
    listing = await cluster.list_pods()
    pods: dict[str, list[PodStatus]] = {}
    for status in listing.pods:
        pods.setdefault(status.name.reservation_id, []).append(status)

    seen, resend = _compare(live.values(), pods, late)
    await observe(uow_factory, cluster, seen, clock)
    resent = 0
    if resend:
        async with uow_factory() as uow:
            resent = await uow.reservations.resend(resend)
            uow.wake(Channel.POD_OPERATIONS)
    orphans = 0
    for status in listing.pods:
        row = live.get(status.name.reservation_id)
        if row is not None and row.attempt == status.name.attempt:
            continue
        async with uow_factory() as uow:
            orphaned = await disown(uow, status, clock)
        if orphaned:
            # No create can bring it back: its row is final, gone, or at another attempt.
            await cluster.delete_pod(str(status.name), rules.grace)
            orphans += 1
    return ResyncReport(resent, orphans, len(seen))


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
        seen += [p for p in own.values() if p.phase is not PodPhase.PENDING]
        if row.status is JobStatus.STARTING and missing and row.id in late:
            resend.append(row.id)
        elif row.status is JobStatus.RUNNING:
            seen += [PodStatus(name, PodPhase.GONE) for name in missing]
        elif row.status is JobStatus.ENDING and not pods.get(row.id):
            seen.append(PodStatus(wanted[0], PodPhase.GONE))
        elif row.status is JobStatus.ENDING and row.id in late:
            resend.append(row.id)
    return seen, resend
