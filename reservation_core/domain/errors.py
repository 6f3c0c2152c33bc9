"""What can go wrong by the rules. Each error carries a stable `code`; its text says what to do next."""

from collections.abc import Sequence
from datetime import datetime

from reservation_core.domain.policy.rules import RuleBreach


class DomainError(Exception):
    """A rule said no. `code` is stable and becomes the problem's `type`."""

    code = "rule_broken"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NotFoundError(DomainError):
    """There is no such thing, or it belongs to somebody else: the two look the same from outside."""

    code = "not_found"


class AlreadyFinalError(DomainError):
    """The reservation has ended; nothing about it can change any more."""

    code = "already_final"


class NotExtendableError(DomainError):
    """The reservation is in a state in which its duration can't be changed."""

    code = "not_extendable"


class CalendarConflictError(DomainError):
    """The GPUs are promised to somebody else in that time.

    Where `detail` names them, `owner_id` is who that is, and `nameless` says it to who may not see whose cards are.
    """

    code = "calendar_conflict"

    def __init__(self, detail: str, nameless: str | None = None, owner_id: int | None = None) -> None:
        super().__init__(detail)
        self.nameless = nameless
        self.owner_id = owner_id


class LimitExceededError(DomainError):
    """The request goes beyond what the operators allow."""

    code = "limit_exceeded"


class StaleVersionError(DomainError):
    """The thing has changed since the caller read it (If-Match)."""

    code = "stale_version"


class IdempotencyConflictError(DomainError):
    """The Idempotency-Key was used before with another request."""

    code = "idempotency_conflict"


class NameTakenError(DomainError):
    """The name is in use."""

    code = "name_taken"


class ForbiddenError(DomainError):
    """The caller is known, and may not do this."""

    code = "forbidden"


class ChainTrimmedError(DomainError):
    """The part of the audit log's chain that was being read has been removed meanwhile."""

    code = "chain_trimmed"


class UnknownBookingError(DomainError):
    """The booking that a job names does not exist for this user."""

    code = "no_such_booking"


class BookingNotUsableError(DomainError):
    """The booking that a job names is over, has no GPUs yet, is too small for it, or is for another project."""

    code = "booking_not_usable"


class UnknownCallerError(DomainError):
    """The caller was disabled after their token was looked up: from outside, as if the token were unknown."""

    code = "unauthenticated"

    def __init__(self, detail: str = "This token is unknown, expired or revoked. Use another token.") -> None:
        super().__init__(detail)


class UserDisabledError(DomainError):
    """The user that something is wanted for can't use the system any more."""

    code = "user_disabled"


class NodeAnswersError(DomainError):
    """The node is ready: what runs there can't be declared gone."""

    code = "node_answers"


class NodeNotFencedError(DomainError):
    """The node is not fenced."""

    code = "node_not_fenced"


class NotPermittedError(DomainError):
    """The policy says no; `broken_rules` holds every rule that the request breaks (see `rules.check`)."""

    code = "not_permitted"

    def __init__(self, detail: str, broken_rules: Sequence[RuleBreach] = ()) -> None:
        super().__init__(detail)
        self.broken_rules = tuple(broken_rules)


class NotBookableError(DomainError):
    """A booking can't be had as asked: every rule that it breaks, and the nearest slots [start, end) that would do.

    Where it names who has its GPUs, `owner_id` is who that is, and `nameless` says it to who may not see that.
    """

    code = "not_bookable"

    def __init__(
        self,
        detail: str,
        broken_rules: Sequence[RuleBreach] = (),
        nearest: Sequence[tuple[datetime, datetime]] = (),
        *,
        nameless: "NotBookableError | None" = None,
        owner_id: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.broken_rules = tuple(broken_rules)
        self.nearest = tuple(nearest)
        self.nameless = nameless
        self.owner_id = owner_id


class NotChangeableError(DomainError):
    """The booking is in a state in which this can't be changed."""

    code = "not_changeable"


class WrongCodeError(DomainError):
    """The code that should confirm an address is not the one that was mailed there."""

    code = "wrong_code"


class NotOfferedError(DomainError):
    """The booking is not on offer (any more): there is nothing to accept or decline."""

    code = "not_offered"


class ProofRefusedError(DomainError):
    """What was sent to sign in with proves nothing here: forged, expired, used before, or meant for somebody else."""

    code = "proof_refused"


class NotLetInError(DomainError):
    """The caller's identity is proved, and no rule makes a user of it; or that user may not come in this way."""

    code = "not_let_in"
