"""May a job be, by the policy? What could never be is refused at submission; what may be later waits for its turn."""

from datetime import datetime, timedelta

from reservation_core.domain.errors import NotPermittedError
from reservation_core.domain.limits import Policy
from reservation_core.domain.model import Reservation, ReservationKind
from reservation_core.domain.rules import BrokenRule, RuleRequest, never_possible


def job_request(job: Reservation, duration: timedelta | None = None) -> RuleRequest:
    """What a job asks of the policy, or would with another duration."""
    return RuleRequest(
        kind=ReservationKind.JOB,
        user=job.user,
        gpus=job.gpus * job.nodes,
        duration=duration or job.duration,
        gpu_type=job.gpu_type,
        priority=job.priority,
        replaces=job.id,
    )


def permit_ever(request: RuleRequest, policy: Policy, now: datetime) -> None:
    """Let a job pass that may start some day. Raises NotPermittedError with every rule that it breaks for ever.

    Jobs of a booking are the booking's: they are not held to quotas.
    """
    broken = never_possible(request, policy, now)
    if broken:
        raise not_permitted(broken)


def not_permitted(broken: list[BrokenRule]) -> NotPermittedError:
    """The refusal."""
    codes = ", ".join(rule.code for rule in broken)
    return NotPermittedError(
        f"The policy does not allow this ({codes}); `broken_rules` says why. POST /v1/policy/explain tells what holds "
        "for you.",
        broken,
    )
