"""Cordons: an administrator wants nothing new on a node. Running jobs go on; bookings there stay what they are.

A cordon has nothing to do with the cluster's own, which says what the cluster itself places, nor with fences, which end
what is there, or maintenance, which makes room. It stands until it is taken back, whatever becomes of the node.
"""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.ports.nodes.inventory import Cordon, NodeRecord, NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.people.users import require_admin


async def cordon(uow: UnitOfWork, principal: Principal, name: str, reason: str | None, now: datetime) -> NodeView:
    """Place nothing new on a node. A cordon that stands is left as it is. Raises ForbiddenError, NotFoundError."""
    node = await _locked(uow, principal, name)
    if node.cordoned_by is None:
        await uow.inventory.cordon(name, Cordon(now, principal.user, reason))
        await _told(uow, principal, name, NodeEventKind.NODE_CORDONED, reason, now)
    return await _view(uow, name)


async def uncordon(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> NodeView:
    """Take a cordon back; where there is none, nothing happens. Raises ForbiddenError, NotFoundError."""
    node = await _locked(uow, principal, name)
    if node.cordoned_by is not None:
        await uow.inventory.uncordon(name)
        await _told(uow, principal, name, NodeEventKind.NODE_UNCORDONED, None, now)
    return await _view(uow, name)


async def _told(
    uow: UnitOfWork, principal: Principal, name: str, kind: NodeEventKind, reason: str | None, now: datetime
) -> None:
    data = None if reason is None else {"reason": reason}
    await uow.events.append(actor=principal.user, kind=kind, at=now, subject=name, data=data)
    uow.wake(Channel.GPU_JOBS)


async def _locked(uow: UnitOfWork, principal: Principal, name: str) -> NodeRecord:
    require_admin(principal)
    node = await uow.inventory.lock_node(name)
    if node is None:
        raise _no_such_node(name)
    return node


async def _view(uow: UnitOfWork, name: str) -> NodeView:
    node = await uow.inventory.node(name)
    if node is None:
        raise _no_such_node(name)
    return node


def _no_such_node(name: str) -> NotFoundError:
    return NotFoundError(f"There is no node {name!r}. GET /v1/nodes lists those that there are.")
