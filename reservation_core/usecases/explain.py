"""May I, and if not, why, and when? The whole answer to a request that is not made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reservation_core.domain.errors import ForbiddenError, NotFoundError
from reservation_core.domain.limits import Limits
from reservation_core.domain.model import ReservationKind
from reservation_core.domain.rules import (
    BrokenRule,
    LimitUse,
    RuleRequest,
    check,
    known_from,
    not_in_project,
    possible_from,
    uses,
)
from reservation_core.ports.identities import Principal
from reservation_core.ports.transactions import UnitOfWork


@dataclass(frozen=True, slots=True)
class Explained:
    """Every rule that is broken, from which start on none would be, and every limit that concerns the request."""

    broken: Sequence[BrokenRule]
    possible_from: datetime | None
    limits: Limits
    uses: Sequence[LimitUse]


async def explain(uow: UnitOfWork, principal: Principal, request: RuleRequest, now: datetime) -> Explained:
    """Hold a request of the caller's, or (administrators) of `request.user`, against the policy.

    Raises ForbiddenError, NotFoundError for an unknown user.
    """
    user_id = principal.user_id
    if request.user != principal.user:
        if not principal.is_admin:
            raise ForbiddenError("Only administrators ask for others. Leave `user` out to ask for yourself.")
        user = await uow.identities.user(request.user)
        if user is None:
            raise NotFoundError(f"There is no user {request.user!r}. GET /v1/users lists those there are.")
        user_id = user.id
    project = request.project
    foreign = project is not None and project not in await uow.projects.of_user(user_id)
    if foreign:
        # What it allows and holds is not theirs to know.
        request = replace(request, project=None)
    policy = (await uow.policies.current()).policy
    limits = policy.limits(request.user, request.project, request.gpu_type)
    usage = await uow.policies.usage(user_id, request.project, known_from(request, limits, now), now)
    broken = check(request, policy, usage, now)
    earliest = possible_from(request, policy, usage, now)
    start = now if request.start is None else request.start
    if request.kind is ReservationKind.BOOKING and start < now.replace(second=0, microsecond=0):
        broken = [BrokenRule("past_start", "Its start is in the past. Begin it now or later.", now), *broken]
        earliest = possible_from(replace(request, start=now), policy, usage, now)
    if foreign and project is not None:
        broken = [not_in_project(project, f"{request.user} is"), *broken]
        earliest = None
    return Explained(broken, earliest, limits, uses(request, policy, usage, now))
