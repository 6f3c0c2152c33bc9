"""Lock or read an existing node for an administrator."""

from typing import TypeVar

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.similar_names import MOST_COMPARED, did_you_mean
from reservation_core.ports.nodes.inventory import NodeRecord, NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.people.users import require_admin

T = TypeVar("T")


async def lock_node(uow: UnitOfWork, principal: Principal, name: str) -> NodeRecord:
    """Lock a node until the transaction ends. Raises ForbiddenError, NotFoundError."""
    require_admin(principal)
    return await _found(uow, await uow.inventory.lock_node(name), name)


async def view_node(uow: UnitOfWork, name: str) -> NodeView:
    """Read a node. Raises NotFoundError."""
    return await _found(uow, await uow.inventory.node(name), name)


async def _found(uow: UnitOfWork, node: T | None, name: str) -> T:
    if node is None:
        known = await uow.inventory.nodes(after=None, limit=MOST_COMPARED)
        meant = did_you_mean(name, [one.name for one in known])
        raise NotFoundError(f"There is no node {name!r}.{meant} `gpu-dev nodes` lists all nodes.")
    return node
