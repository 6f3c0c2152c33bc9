"""Explain whether the policy permits a request, and if not, why and from when on, without making it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.bookings.asked_slots import Span
from reservation_core.domain.bookings.refusals import this_minute, timing
from reservation_core.domain.errors import ForbiddenError, NotFoundError
from reservation_core.domain.policy.any_type import judged
from reservation_core.domain.policy.limits import Limits, Policy
from reservation_core.domain.policy.nouns import QUOTAS, RuleName
from reservation_core.domain.policy.prices import Money
from reservation_core.domain.policy.quota_windows import whole_minute
from reservation_core.domain.policy.rules import LimitUse, RuleBreach, RuleRequest, known_from, uses
from reservation_core.domain.statuses import JobStatus, ReservationKind
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.bookings.read_booking_rules import foreign_project
from reservation_core.usecases.people.users import unknown_user
from reservation_core.usecases.policy.outlook import beyond_budget

_NOT_IN_BOOKINGS = frozenset({*QUOTAS, RuleName.COST_PER_GPU_HOUR, RuleName.ORDER, RuleName.IDLE})
"""The rules that don't concern jobs in a booking."""


@dataclass(frozen=True, slots=True)
class Explained:
    """All broken rules, the earliest start that breaks none, and all limits that concern the request.

    Without a type, these are for the type with the fewest broken rules, and the cost is known if all have one price.
    """

    broken: Sequence[RuleBreach]
    possible_from: datetime | None
    limits: Limits
    uses: Sequence[LimitUse]
    cost: Money | None


async def asked_for(uow: UnitOfWork, principal: Principal, user: str | None) -> tuple[Principal, bool]:
    """The caller, or as administrator another user, who makes the request; and whether that user is disabled.

    Raises ForbiddenError, NotFoundError for an unknown user.
    """
    if user in (None, principal.user):
        return principal, False
    if not principal.is_admin:
        raise ForbiddenError("Only administrators may ask for other users. Leave `user` out to ask for yourself.")
    record = await uow.identities.user(user)
    if record is None:
        raise await unknown_user(uow, principal, user)
    return Principal(record.id, record.name, record.role, "", None), record.disabled_at is not None


async def check_replaced(uow: UnitOfWork, who: Principal, job_id: str) -> None:
    """Raise NotFoundError unless this is a waiting job of this user."""
    view = await uow.reservations.view(job_id, who.user_id)
    if view is None or view.reservation.status is not JobStatus.QUEUED:
        raise NotFoundError(f"No job {job_id} of {who.user} is waiting. `instead_of` must name a waiting job.")


async def explain(
    uow: UnitOfWork, who: Principal, request: RuleRequest, now: datetime, *, in_booking: bool = False
) -> Explained:
    """Check a request of this user against the policy. Jobs in a booking are the booking's, and held to no quota."""
    project = request.project
    foreign = await foreign_project(uow, who.user_id, project, f"{request.user} is")
    if foreign is not None:
        # Rules and usage of a foreign project are not shown.
        request = replace(request, project=None)
    policy = (await uow.policies.current()).policy
    types = (
        {gpu_type for gpu_type, _, _ in await uow.inventory.gpu_counts()}
        if request.gpu_type is None and not in_booking
        else set()
    )
    since = min(
        known_from(request, policy.limits(request.user, request.project, gpu_type), now)
        for gpu_type in (request.gpu_type, *types)
    )
    usage = await uow.policies.usage(who.user_id, request.project, since, now)
    start = now if request.start is None else request.start
    verdict = judged(request, policy, usage, now, types)
    broken, earliest = list(verdict.broken), verdict.possible_from
    if request.kind is ReservationKind.BOOKING:
        untimely = timing(Span(start, start + request.duration), now)
        broken = [*untimely, *broken]
        if start < this_minute(now):
            broken[0] = replace(broken[0], possible_from=whole_minute(now))
            earliest = judged(replace(request, start=whole_minute(now)), policy, usage, now, types).possible_from
        elif untimely:
            earliest = None
    if foreign is not None:
        broken = [foreign, *broken]
        earliest = None
    if not in_booking:
        beyond = await beyond_budget(uow, who, request.gpus, request.duration, now, request.replaces)
        broken, earliest = [*broken, *beyond], None if beyond else earliest
    cost = None if in_booking else _cost(request, policy, types)
    request = replace(request, gpu_type=verdict.gpu_type)
    limits = policy.limits(request.user, request.project, request.gpu_type)
    concerned = uses(request, policy, usage, now)
    if in_booking:
        broken = [rule for rule in broken if rule.code not in QUOTAS]
        concerned = [use for use in concerned if use.name not in _NOT_IN_BOOKINGS]
        earliest = None if broken else now
    return Explained(broken, earliest, limits, concerned, cost)


def _cost(request: RuleRequest, policy: Policy, types: Collection[str]) -> Money | None:
    """The cost of the whole duration, unless the types that the request may get differ in price."""
    gpu_types = types if request.gpu_type is None else (request.gpu_type,)
    prices = {policy.price(request.user, request.project, gpu_type) for gpu_type in gpu_types}
    price = prices.pop() if len(prices) == 1 else None
    return None if price is None else price.of_time(request.gpus * Decimal(request.duration // timedelta(seconds=1)))
