"""Carrying out pod operations: the row says what should be, the message only says to look.

Creating and finalising one reservation's pods exclude each other by its pod lock: a create that read `starting` before
a cancel is waited for by the delete, and a create that comes after it reads `ending` and does nothing.
"""

from dataclasses import dataclass
from datetime import timedelta

from reservation_core.contracts import PodOperation
from reservation_core.domain.changes import PodsGone, StartRefused
from reservation_core.domain.lifecycle import decide
from reservation_core.domain.model import JobStatus, PodName, Reservation
from reservation_core.domain.pods import pod_specs
from reservation_core.ports.clock import Clock
from reservation_core.ports.cluster import Cluster, PodRefusedError
from reservation_core.ports.transactions import UnitOfWork
from reservation_core.usecases.changing import carry_out


@dataclass(frozen=True, slots=True)
class LaunchRules:
    """How pods are started and ended. `belt` is how much later than its range the cluster ends a pod by itself."""

    grace: timedelta
    belt: timedelta


async def perform(uow: UnitOfWork, cluster: Cluster, operation: PodOperation, clock: Clock, rules: LaunchRules) -> None:
    """Bring the cluster to what the row says. Stale, doubled and late operations do nothing.

    Raises ClusterUnavailableError when the cluster can't be asked: try again.
    """
    await uow.hold_pod_lock(operation.id)
    reservation = (await uow.reservations.get([operation.id])).get(operation.id)
    if reservation is None or reservation.attempt != operation.attempt:
        return
    match operation.op:
        case "create":
            await _create(uow, cluster, reservation, clock, rules)
        case "delete":
            await _delete(uow, cluster, reservation, clock, rules)
        case "deadline":
            await _move_deadline(cluster, reservation, rules)


async def finalise(uow: UnitOfWork, reservation_id: str, clock: Clock) -> None:
    """Close a reservation whose pods are known to be gone. Call it under the pod lock, after looking."""
    reservation = (await uow.reservations.lock([reservation_id])).get(reservation_id)
    if reservation is None:
        return
    change = decide(reservation, PodsGone(), clock.now())
    if change is not None:
        await carry_out(uow, [change])


async def _create(
    uow: UnitOfWork, cluster: Cluster, reservation: Reservation, clock: Clock, rules: LaunchRules
) -> None:
    if reservation.status is not JobStatus.STARTING:
        return
    allocations = (await uow.reservations.allocations([reservation.id])).get(reservation.id, ())
    master = cluster.master_address(reservation.id, reservation.attempt)
    specs = pod_specs(reservation, allocations, clock.now(), rules.grace, rules.belt, master)
    try:
        for spec in specs:
            await cluster.create_pod(spec)
    except PodRefusedError as refusal:
        row = (await uow.reservations.lock([reservation.id]))[reservation.id]
        change = decide(row, StartRefused(refusal.reason), clock.now())
        if change is not None:
            await carry_out(uow, [change])


async def _delete(
    uow: UnitOfWork, cluster: Cluster, reservation: Reservation, clock: Clock, rules: LaunchRules
) -> None:
    if reservation.status is not JobStatus.ENDING:
        return
    for pod in await cluster.find_pods(reservation.id):
        await cluster.delete_pod(str(pod.name), rules.grace)
    if not await cluster.find_pods(reservation.id):
        await finalise(uow, reservation.id, clock)


async def _move_deadline(cluster: Cluster, reservation: Reservation, rules: LaunchRules) -> None:
    if reservation.status not in (JobStatus.STARTING, JobStatus.RUNNING) or reservation.range_end is None:
        return
    for rank in range(reservation.nodes):
        name = PodName(reservation.id, reservation.attempt, rank)
        await cluster.extend_deadline(str(name), reservation.range_end + rules.belt)
