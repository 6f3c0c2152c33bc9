"""An administrator's quarantine of a GPU, and its release: nothing new gets the GPU, and a job that has it goes on."""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.domain.model import GpuCondition
from reservation_core.ports.gpu_use import LockedGpu
from reservation_core.ports.nodes.inventory import NodeView
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.gpu_use.watch_health import quarantine_for
from reservation_core.usecases.nodes.existing_node import lock_node, view_node

_BY_HAND = "quarantined by hand"


async def quarantine(
    uow: UnitOfWork, principal: Principal, node: str, index: int, reason: str | None, now: datetime
) -> NodeView:
    """Quarantine a GPU; one that is quarantined or in maintenance stays so. Raises ForbiddenError, NotFoundError."""
    await lock_node(uow, principal, node)
    gpu = await _lock_gpu(uow, node, index)
    await quarantine_for(uow, gpu.id, principal.user, reason or _BY_HAND, now)
    return await view_node(uow, node)


async def release(uow: UnitOfWork, principal: Principal, node: str, index: int, now: datetime) -> NodeView:
    """End a GPU's quarantine; idempotent. Errors until now count no more. Raises ForbiddenError, NotFoundError."""
    await lock_node(uow, principal, node)
    gpu = await _lock_gpu(uow, node, index)
    if gpu.condition is GpuCondition.QUARANTINED:
        await uow.gpu_health.release(gpu.id, now)
        kind = NodeEventKind.GPU_RELEASED
        await uow.events.append(actor=principal.user, kind=kind, at=now, subject=f"{node}/{index}")
        uow.wake(Channel.GPU_JOBS)
        uow.wake(Channel.EVENTS)
    return await view_node(uow, node)


async def _lock_gpu(uow: UnitOfWork, node: str, index: int) -> LockedGpu:
    gpu = await uow.gpu_health.lock(node, index)
    if gpu is None:
        raise NotFoundError(f"Node {node!r} has no GPU {index}. `gpu-dev gpus --each` lists all GPUs.")
    return gpu
