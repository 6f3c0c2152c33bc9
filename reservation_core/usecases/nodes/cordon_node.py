"""Cordons: no new work on a node, while running jobs go on and bookings stay.

A cordon differs from Kubernetes' own, from fences, which end running jobs, and from maintenance windows, which move
them. It lasts until it is removed, whatever happens to the node.
"""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.ports.nodes.inventory import Cordon, NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.nodes.existing_node import lock_node, view_node


async def cordon(uow: UnitOfWork, principal: Principal, name: str, reason: str | None, now: datetime) -> NodeView:
    """Cordon a node; idempotent, but another reason replaces the former. Raises ForbiddenError, NotFoundError."""
    node = await lock_node(uow, principal, name)
    if node.cordoned_by is None or reason not in (None, node.cordon_reason):
        await uow.inventory.cordon(name, Cordon(now, principal.user, reason))
        await _record(uow, principal, name, NodeEventKind.NODE_CORDONED, reason, now)
    return await view_node(uow, name)


async def uncordon(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> NodeView:
    """Uncordon a node; idempotent. Raises ForbiddenError, NotFoundError."""
    node = await lock_node(uow, principal, name)
    if node.cordoned_by is not None:
        await uow.inventory.uncordon(name)
        await _record(uow, principal, name, NodeEventKind.NODE_UNCORDONED, None, now)
    return await view_node(uow, name)


async def _record(
    uow: UnitOfWork, principal: Principal, name: str, kind: NodeEventKind, reason: str | None, now: datetime
) -> None:
    data = None if reason is None else {"reason": reason}
    await uow.events.append(actor=principal.user, kind=kind, at=now, subject=name, data=data)
    uow.wake(Channel.GPU_JOBS)
