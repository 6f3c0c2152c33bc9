"""Whether a user may use GPUs now, and until when; for the enforcement of bookings in clusters."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.pods.booked_nodes import MOST_NODES
from reservation_core.domain.policy.nouns import RuleName
from reservation_core.domain.policy.rules import RuleRequest, check, known_from
from reservation_core.domain.statuses import ReservationKind, Role
from reservation_core.ports.people.identities import Principal, UserRecord
from reservation_core.ports.policy.entitlements import Entitlement, NodeOfBooking

_QUOTAS = frozenset({RuleName.MAX_GPUS.value, RuleName.MAX_GPU_HOURS_PER_WEEK.value})
_NOW = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class UserVerdict:
    """The verdict and its reason.

    `until`: the end of the booking; without one, until when the calendar has so many free GPUs (None: no end known).
    `gpus` None: no limit. `nodes`: the nodes of the booking, for a pod those with enough unused GPUs, and of too many
    those with the most; None without a booking.
    """

    schedulable: bool
    reason: str
    until: datetime | None = None
    gpu_type: str | None = None
    gpus: int | None = None
    booking_id: str | None = None
    nodes: tuple[str, ...] | None = None


def require_service(principal: Principal) -> None:
    """Raises ForbiddenError unless the caller is a service or an administrator."""
    if principal.role is not Role.SERVICE and not principal.is_admin:
        raise ForbiddenError(
            "Only services and administrators may ask this. Ask an administrator for a service's token."
        )


@dataclass(frozen=True, slots=True)
class JudgedPod:
    """The pod in question; `uid` None: it does not exist yet."""

    uid: str | None = None


async def schedulability(
    uow: UnitOfWork,
    principal: Principal,
    user: str,
    gpu_type: str | None,
    gpus: int,
    now: datetime,
    pod: JudgedPod | None = None,
) -> UserVerdict:
    """Whether `user` may use so many GPUs of a type (None: any) now.

    Allowed during a booking's slot, and by a policy that requires no booking, within quotas and if enough GPUs are
    free. For a `pod`, GPUs of the booking that are in use don't count. Raises ForbiddenError unless the caller is a
    service or an administrator.
    """
    require_service(principal)
    record = await uow.identities.user(user)
    if record is None or record.disabled_at is not None:
        return UserVerdict(False, f"There is no user {user!r}, or they are disabled. An administrator can add them.")
    held = await uow.entitlements.of_user(record.id, None if pod is None else pod.uid)
    bookings = [entitlement for entitlement in held if gpu_type in (None, entitlement.gpu_type)]
    able = [booking for booking in bookings if booking.gpus - (booking.used if pod is not None else 0) >= gpus]
    if able:
        return await _by_booking(uow, able, gpus, pod)
    most = max((booking.gpus for booking in bookings), default=0)
    verdict = await _without_booking(uow, record, gpu_type, gpus, most, now)
    full = next((booking for booking in bookings if booking.gpus >= gpus), None)
    if verdict.schedulable or full is None:
        return verdict
    detail = f"Booking {full.booking_id} holds {full.gpus} {full.gpu_type}; {full.used} are in use by what runs in it."
    return UserVerdict(False, f"{detail} Wait until something has ended there, or book more.")


async def _by_booking(uow: UnitOfWork, able: Sequence[Entitlement], gpus: int, pod: JudgedPod | None) -> UserVerdict:
    """The verdict by the first booking with a node for the pod, or by the first booking."""
    chosen, nodes = able[0], list[NodeOfBooking]()
    for booking in able:
        uid = None if pod is None else pod.uid
        all_nodes = await uow.entitlements.nodes_of(booking.booking_id, booking.gpu_type, uid)
        fitting = [node for node in all_nodes if pod is None or node.unused >= gpus]
        if fitting:
            chosen, nodes = booking, fitting
            break
    most_unused = sorted(nodes, key=lambda node: (-node.unused, node.name))[:MOST_NODES]
    return UserVerdict(
        True,
        f"Booking {chosen.booking_id} holds {chosen.gpus} {chosen.gpu_type} until its end.",
        chosen.until,
        chosen.gpu_type,
        chosen.gpus,
        chosen.booking_id,
        tuple(sorted(node.name for node in most_unused)),
    )


async def _without_booking(
    uow: UnitOfWork, user: UserRecord, gpu_type: str | None, gpus: int, booked: int, now: datetime
) -> UserVerdict:
    what = "GPUs" if gpu_type is None else gpu_type
    types = await uow.entitlements.free_of_types(gpu_type, gpus)
    if not types:
        return UserVerdict(False, f"There are no {what} that get new work. GET /v1/gpus shows what there is.")
    policy = (await uow.policies.current()).policy
    # Without a requested type, every type must be allowed, as the pod may get any.
    limits = {availability.gpu_type: policy.limits(user.name, None, availability.gpu_type) for availability in types}
    if any(limit.booking_required is None or limit.booking_required.value for limit in limits.values()):
        if booked:
            return UserVerdict(False, f"{user.name} has booked {booked} {what} now; {gpus} are asked for. Book more.")
        return UserVerdict(False, f"{user.name} has no booking of {what} now. Book with POST /v1/bookings.")
    for availability in types:
        request = RuleRequest(
            kind=ReservationKind.JOB, user=user.name, gpus=gpus, duration=_NOW, gpu_type=availability.gpu_type
        )
        usage = await uow.policies.usage(user.id, None, known_from(request, limits[availability.gpu_type], now), now)
        broken = [rule for rule in check(request, policy, usage, now) if rule.code in _QUOTAS]
        if broken:
            return UserVerdict(False, " ".join(rule.detail for rule in broken))
    able = [availability for availability in types if availability.free >= gpus]
    if not able:
        free = ", ".join(
            f"{availability.free} of {availability.cards} {availability.gpu_type}" for availability in types
        )
        advice = "Ask for less or later, or book with POST /v1/bookings."
        return UserVerdict(False, f"Free now: {free}; {gpus} of a type are asked for. {advice}")
    first = min(able, key=lambda availability: (availability.until is None, availability.until or now))
    reason = f"The policy asks {user.name} for no booking of {what}."
    if first.until is not None:
        reason += f" {gpus} {first.gpu_type} are free until {first.until:%Y-%m-%dT%H:%M:%SZ}."
    most = limits[first.gpu_type].max_gpus
    return UserVerdict(True, reason, first.until, gpu_type, None if most is None else most.value)
