"""Creating the pods of many reservations at once: one transaction for all of them instead of one for each.

Only what is plain is done so; whatever is not (a gang, a refusal, a cluster that does not answer, a lock that somebody
holds) is left to `launch.perform`, which comes to the right end by itself, also after a create that was done here.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from reservation_core.contracts import PodOperation
from reservation_core.domain.model import AllocatedGpu, JobStatus, PodSpec, Reservation
from reservation_core.domain.pods import pod_specs
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, ClusterUnavailableError, PodRefusedError
from reservation_core.ports.transactions import UnitOfWork
from reservation_core.usecases.launch import LaunchRules
from reservation_core.usecases.pod_calls import call_all


async def create_together(
    uow: UnitOfWork, cluster: Cluster, operations: Sequence[PodOperation], clock: Clock, rules: LaunchRules
) -> set[str]:
    """The ids of the reservations whose one pod exists now; everything else is as it was, and still to be done.

    Under the pod locks of all of them, as far as they are free: what was read holds until the transaction ends.
    """
    named = Counter(operation.id for operation in operations)
    attempts = {op.id: op.attempt for op in operations if op.op == "create" and named[op.id] == 1}
    if len(attempts) < 2:
        return set()
    free = sorted(await uow.try_pod_locks(sorted(attempts)))
    if not free:
        return set()
    # Only now: what is read before its lock was taken may be out of date.
    rows = await uow.reservations.get(free)
    allocations = await uow.reservations.allocations(free)
    specs: dict[str, PodSpec] = {}
    for row in rows.values():
        cards = allocations.get(row.id, ())
        if row.attempt == attempts[row.id] and _is_plain(row, cards, clock.now()):
            master = cluster.master_address(row.id, row.attempt)
            [specs[row.id]] = pod_specs(row, cards, clock.now(), rules.grace, rules.belt, master)
    done: set[str] = set()

    async def create(reservation_id: str, spec: PodSpec) -> None:
        try:
            await cluster.create_pod(spec)
        except (PodRefusedError, ClusterUnavailableError):
            return  # asked again by itself, where that has its consequences
        done.add(reservation_id)

    if specs:
        calls = [partial(create, *each) for each in specs.items()]
        await call_all(uow, next(iter(specs)), calls, touch=rules.touch)
    return done


def _is_plain(row: Reservation, cards: Sequence[AllocatedGpu], now: datetime) -> bool:
    return (
        row.status is JobStatus.STARTING
        and row.nodes == 1
        and (row.range_end is None or row.range_end > now)
        and len(cards) > 0
        and all(card.claimed_by is None for card in cards)
    )
