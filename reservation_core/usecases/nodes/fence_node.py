"""Fences: an administrator's word that a machine is without power stands for the word of the machine itself.

Only that ends what runs on a node which does not answer. A fence stands until an administrator takes it back, also when
the node answers again: whatever came back with it should be looked at first, and no card of a fenced node is given out,
so a pod that was forgotten too early can't meet a new holder of its cards.
"""

from collections.abc import Sequence
from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.changes import NodeFenced
from reservation_core.domain.errors import NodeAnswersError, NodeNotFencedError, NotFoundError
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.domain.jobs.lifecycle import decide
from reservation_core.domain.model import JobStatus, PodName, PodStatus, Reservation
from reservation_core.ports.clock import Clock
from reservation_core.ports.nodes.inventory import NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.carry_out import carry_out
from reservation_core.usecases.people.users import require_admin


async def fence(uow: UnitOfWork, principal: Principal, name: str, reason: str | None, now: datetime) -> NodeView:
    """Note that a node is without power; the processor ends what ran there. A fence that stands is left as it is.

    Raises ForbiddenError, NotFoundError, NodeAnswersError.
    """
    require_admin(principal)
    node = await uow.inventory.lock_node(name)
    if node is None:
        raise _no_such_node(name)
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
    return await _view(uow, name)


async def unfence(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> NodeView:
    """Take a fence back: the node's cards can be had as soon as it is ready.

    Raises ForbiddenError, NotFoundError, NodeNotFencedError.
    """
    require_admin(principal)
    node = await uow.inventory.lock_node(name)
    if node is None:
        raise _no_such_node(name)
    if node.fenced_by is None:
        raise NodeNotFencedError(f"The node {name} is not fenced; there is nothing to take back.")
    await uow.inventory.unfence(name)
    await uow.events.append(actor=principal.user, kind=NodeEventKind.NODE_UNFENCED, at=now, subject=name)
    uow.wake(Channel.GPU_JOBS)
    return await _view(uow, name)


async def end_cut_off(uow_factory: UnitOfWorkFactory, clock: Clock, max_starts: int) -> int:
    """End what holds cards of nodes that are fenced and don't answer; returns how many reservations that changed.

    Notify jobs that are ending already to let go of their pods: there is no process left there to wait for.
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
    """The names of those of a reservation's pods whose nodes are fenced and don't answer: they count as gone.

    Which node a pod is on the ledger knows best; of others the pod's own word is taken.
    """
    if not pods:
        return set()
    nodes = {pod.name: said.node for pod in pods if (said := pod.holding or pod.place) is not None}
    if reservation is not None:
        allocations = (await uow.reservations.allocations([reservation.id])).get(reservation.id, ())
        nodes |= {PodName(reservation.id, reservation.attempt, gpu.rank): gpu.node for gpu in allocations}
    fences = await uow.inventory.without_power(sorted(set(nodes.values())))
    return {str(pod.name) for pod in pods if nodes.get(pod.name) in fences}


async def _view(uow: UnitOfWork, name: str) -> NodeView:
    node = await uow.inventory.node(name)
    if node is None:
        raise _no_such_node(name)
    return node


def _no_such_node(name: str) -> NotFoundError:
    return NotFoundError(f"There is no node {name!r}. GET /v1/nodes lists those that there are.")
