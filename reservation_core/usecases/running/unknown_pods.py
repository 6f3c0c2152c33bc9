"""End an unknown pod at an administrator's request."""

from datetime import datetime

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import NotFoundError
from reservation_core.domain.event_kinds import NodeEventKind
from reservation_core.ports.jobs.unknown_pods import UnknownPod
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.wakeups import Channel
from reservation_core.usecases.people.users import require_admin


async def end(uow: UnitOfWork, principal: Principal, name: str, now: datetime) -> UnknownPod:
    """Request the end of a pod, which the processor carries out; idempotent. Raises ForbiddenError, NotFoundError."""
    require_admin(principal)
    before = (await uow.unknown_pods.of([name.rsplit("-", 2)[0]])).get(name)
    pod = await uow.unknown_pods.request_end(name, principal.user, now)
    if pod is None:
        raise NotFoundError(f"There is no unknown pod {name!r}. `gpu-dev pods` lists all unknown pods.")
    if before is None or before.end_requested_at is None:
        await uow.events.append(
            actor=principal.user, kind=NodeEventKind.UNKNOWN_POD_END_REQUESTED, at=now, subject=name
        )
    uow.wake(Channel.RESYNC)
    return pod
