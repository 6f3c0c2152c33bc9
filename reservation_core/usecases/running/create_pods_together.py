"""Create the pods of many reservations at once, with common reads and locks.

All other cases (gangs, secrets, refusals, a cluster that does not answer, a taken lock) are left to
`perform_pod_operations.perform`, which also handles pods that were created here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from reservation_core.adapters.postgres.unit_of_work import HeldPods, UnitOfWorkFactory
from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.model import AllocatedGpu, PodSpec, Reservation
from reservation_core.domain.pods.pod_environment import pod_specs
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, ClusterUnavailableError, PodRefusedError
from reservation_core.ports.traces import Traces
from reservation_core.usecases.running.job_spans import read_creations
from reservation_core.usecases.running.perform_pod_operations import LaunchRules
from reservation_core.usecases.running.pod_creation import PodCreation


async def create_together(
    uow_factory: UnitOfWorkFactory,
    cluster: Cluster,
    operations: Sequence[PodOperation],
    clock: Clock,
    rules: LaunchRules,
    traces: Traces | None = None,
) -> set[str]:
    """Create pods under all free pod locks; returns the ids of the reservations whose pod exists now."""
    named = Counter(operation.id for operation in operations)
    attempts = {op.id: op.attempt for op in operations if op.op == "create" and named[op.id] == 1}
    if len(attempts) < 2:
        return set()
    async with uow_factory.hold_pods(sorted(attempts)) as held:
        if not held.ids:
            return set()
        free = sorted(held.ids)
        # Read under the locks: earlier reads may be stale.
        async with held.work(one_statement=True) as uow:
            rows = await uow.reservations.get(free)
            allocations = await uow.reservations.allocations(free)
            spans = await read_creations(uow, traces, rows.values())
        specs: dict[str, PodSpec] = {}
        for row in rows.values():
            cards = allocations.get(row.id, ())
            if row.attempt == attempts[row.id] and _is_plain(row, cards, clock.now()):
                master = cluster.master_address(row.id, row.attempt)
                [specs[row.id]] = pod_specs(row, cards, clock.now(), rules.grace, rules.belt, master, rules.access)
        begun = clock.now()
        done = await _create_each(held, cluster, specs, clock, rules)
        for reservation_id, ended in done.items():
            spans.add(rows[reservation_id], allocations[reservation_id], begun, ended)
        return {*done}


async def _create_each(
    held: HeldPods, cluster: Cluster, specs: Mapping[str, PodSpec], clock: Clock, rules: LaunchRules
) -> dict[str, datetime]:
    """When each was created."""
    creation = PodCreation(held, cluster, clock, late=rules.late, slow_after=rules.slow_after)
    done: dict[str, datetime] = {}

    async def create(reservation_id: str, spec: PodSpec) -> None:
        try:
            await creation.create(spec)
        except (PodRefusedError, ClusterUnavailableError):
            return  # `perform` tries again and handles the failure
        done[reservation_id] = clock.now()

    await creation.all([partial(create, *spec) for spec in specs.items()])
    return done


def _is_plain(row: Reservation, cards: Sequence[AllocatedGpu], now: datetime) -> bool:
    return (
        row.status is JobStatus.STARTING
        and row.nodes == 1
        and row.workload.unread is None
        and not row.workload.secrets
        and (row.range_end is None or row.range_end > now)
        and len(cards) > 0
        and all(card.claimed_by is None for card in cards)
    )
