"""Fences: an administrator confirms that a node which does not answer is powered off.

Only a fence ends jobs on a silent node. It lasts until an administrator removes it, even if the node answers again: the
node should be inspected first. GPUs of a fenced node are not assigned, so a pod that was forgotten too early can't meet
a new holder of its GPUs.
"""

from collections.abc import Sequence
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import NodeFenced
from reservation_core.domain.errors import NodeAnswersError, NodeNotFencedError
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import PodName, PodStatus, Reservation
from reservation_core.domain.statuses import JobStatus
from reservation_core.ports.clock import Clock
from reservation_core.ports.nodes.inventory import NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.nodes.existing_node import lock_node, view_node


async def fence(uow: UnitOfWork, principal: Principal, name: str, reason: str | None, now: datetime) -> NodeView:
    """Mark a node as powered off, so that the processor ends its jobs; idempotent.

    Raises ForbiddenError, NotFoundError, NodeAnswersError.
    """
    node = await lock_node(uow, principal, name)
    if node.fenced_by is None:
        if node.ready:
            raise NodeAnswersError(
                f"The node {name} is ready, and what runs on it goes on. Fence only a machine that is known to be "
                "without power. If you have just switched it off, try again when `gpu-dev nodes` says that it is not "
                "ready."
            )
        await uow.inventory.fence(name, principal.user, reason, now)
        await uow.events.append(
            actor=principal.user, kind=NodeEventKind.NODE_FENCED, at=now, subject=name, data={"reason": reason}
        )
        uow.wake(Channel.GPU_JOBS)
    uow.wake(Channel.RESYNC)
    return await view_node(uow, name)


async def unfence(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> NodeView:
    """Remove a fence; the node's GPUs are usable as soon as it is ready.

    Raises ForbiddenError, NotFoundError, NodeNotFencedError.
    """
    node = await lock_node(uow, principal, name)
    if node.fenced_by is None:
        raise NodeNotFencedError(f"The node {name} is not fenced; there is nothing to undo.")
    await uow.inventory.unfence(name)
    await uow.events.append(actor=principal.user, kind=NodeEventKind.NODE_UNFENCED, at=now, subject=name)
    uow.wake(Channel.GPU_JOBS)
    return await view_node(uow, name)


async def end_fenced_reservations(uow_factory: UnitOfWorkFactory, clock: Clock, max_starts: int) -> int:
    """End reservations that hold GPUs of fenced nodes which don't answer; returns the number of changes.

    Jobs that are ending already get new delete messages: no process is left to wait for.
    """
    async with uow_factory() as uow:
        fences = await uow.inventory.cut_off()
        if not fences:
            return 0
        rows = await uow.reservations.lock(sorted(fences))
        changes = []
        for row in rows.values():
            fence = fences[row.id]
            change = decide(row, NodeFenced(fence.node, fence.by, fence.reason, max_starts), clock.now())
            if change is not None:
                changes.append(change)
        await carry_out(uow, changes)
        ending = [row.id for row in rows.values() if row.status is JobStatus.ENDING]
        if await uow.reservations.resend(ending):
            uow.wake(Channel.POD_OPERATIONS)
    return len(changes)


async def without_power(uow: UnitOfWork, reservation: Reservation | None, pods: Sequence[PodStatus]) -> set[str]:
    """The names of a reservation's pods on fenced nodes that don't answer, which count as gone.

    The ledger names a pod's node; for pods that it lacks, the pod itself does.
    """
    if not pods:
        return set()
    nodes = {pod.name: place.node for pod in pods if (place := pod.holding or pod.place) is not None}
    if reservation is not None:
        allocations = (await uow.reservations.allocations([reservation.id])).get(reservation.id, ())
        nodes |= {PodName(reservation.id, reservation.attempt, gpu.rank): gpu.node for gpu in allocations}
    fences = await uow.inventory.without_power(sorted(set(nodes.values())))
    return {str(pod.name) for pod in pods if nodes.get(pod.name) in fences}
