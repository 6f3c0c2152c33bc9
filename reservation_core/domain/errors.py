"""Errors by the rules. Each carries a stable `code`; its text says what to do next."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from reservation_core.domain.policy.rules import RuleBreach


class DomainError(Exception):
    """A rule refused the request. `code` is stable and becomes the problem's `type`.

    `broken_rules` says more than `detail`: every rule of the policy that is broken, or every refusal where there are
    several.
    """

    code: ClassVar[str]
    broken_rules: tuple[RuleBreach, ...] = ()

    def __init_subclass__(cls, code: str) -> None:
        cls.code = code

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    @property
    def breaches(self) -> tuple[RuleBreach, ...]:
        """What stands against the request, at least one."""
        return self.broken_rules or (RuleBreach(self.code, self.detail),)


def merge_refusals(refusals: Sequence[DomainError]) -> DomainError:
    """Merge refusals of one request: the first one's kind, with the words of all."""
    first = refusals[0]
    if len(refusals) > 1:
        first.broken_rules = tuple(breach for refusal in refusals for breach in refusal.breaches)
        first.detail = " ".join(refusal.detail for refusal in refusals)
        first.args = (first.detail,)
    return first


class NotFoundError(DomainError, code="not_found"):
    """The object does not exist or belongs to another user, which looks the same to the caller."""


class AlreadyFinalError(DomainError, code="already_final"):
    """The reservation has ended and can't change any more."""


class NotExtendableError(DomainError, code="not_extendable"):
    """The reservation has a status in which its duration can't be changed."""


class CalendarConflictError(DomainError, code="calendar_conflict"):
    """The GPUs are promised to another reservation in that time.

    If `detail` names its owner, `owner_id` is theirs, and `nameless` is the text for users who may not see owners.
    """

    def __init__(self, detail: str, nameless: str | None = None, owner_id: int | None = None) -> None:
        super().__init__(detail)
        self.nameless = nameless
        self.owner_id = owner_id


class NoSuchTypeError(DomainError, code="no_such_type"):
    """No node has ever had a GPU of the type that a job asks for."""


class NothingToSimulateError(DomainError, code="nothing_to_simulate"):
    """None of the jobs of a simulation can run in it."""


class NoImagesError(DomainError, code="no_images"):
    """The workload names a container image, and this cluster runs processes without containers."""


class LimitExceededError(DomainError, code="limit_exceeded"):
    """The request exceeds the operators' limit."""


class StaleVersionError(DomainError, code="stale_version"):
    """The object has changed since the caller read it (If-Match)."""


class IdempotencyConflictError(DomainError, code="idempotency_conflict"):
    """The Idempotency-Key was used before with another request."""


class NameTakenError(DomainError, code="name_taken"):
    """The name is in use."""


class MisplacedRuleError(DomainError, code="misplaced_rule"):
    """The policy has no such rule for this scope."""


class NotIdleError(DomainError, code="not_idle"):
    """The job has no warning that its GPUs are idle."""


class ForbiddenError(DomainError, code="forbidden"):
    """The caller is authenticated, but may not do this."""


class ChainTrimmedError(DomainError, code="chain_trimmed"):
    """The requested part of the audit log's chain was removed meanwhile."""


class UnknownBookingError(DomainError, code="no_such_booking"):
    """The booking that a job names does not exist for this user."""


class UnknownSecretError(DomainError, code="no_such_secret"):
    """Secrets that a job names do not exist or belong to another user; `broken_rules` names each field."""

    def __init__(self, detail: str, broken_rules: Sequence[RuleBreach] = ()) -> None:
        super().__init__(detail)
        self.broken_rules = tuple(broken_rules)


class UnknownDiskError(DomainError, code="no_such_disk"):
    """Disks that a job names do not exist or belong to another user; `broken_rules` names each field."""

    def __init__(self, detail: str, broken_rules: Sequence[RuleBreach] = ()) -> None:
        super().__init__(detail)
        self.broken_rules = tuple(broken_rules)


class DiskInUseError(DomainError, code="disk_in_use"):
    """A job that has not ended has the disk, or it is being copied."""


class NoDisksError(DomainError, code="no_disks"):
    """This server, or a job of this kind, can't have disks."""


class UnknownJobError(DomainError, code="no_such_job"):
    """Jobs that a job is to wait for do not exist or belong to another user; `broken_rules` names each field."""

    def __init__(self, detail: str, broken_rules: Sequence[RuleBreach] = ()) -> None:
        super().__init__(detail)
        self.broken_rules = tuple(broken_rules)


class UnknownFolderError(DomainError, code="no_such_folder"):
    """The folder that a job begins with was not sent by its owner, or is removed."""


class InvalidFolderError(DomainError, code="invalid_folder"):
    """The list of a folder is malformed, or names places outside of the folder."""


class NoFilesError(DomainError, code="no_files"):
    """This server can't give files to the job."""


class NoSecretsKeyError(DomainError, code="no_secrets_key"):
    """The server has no key to seal secrets with, so it stores none."""


class BookingNotUsableError(DomainError, code="booking_not_usable"):
    """The booking that a job names is over, has no GPUs yet, is too small, or belongs to another project."""


class BeyondBookedShareError(DomainError, code="beyond_booked_share"):
    """A job asks for more CPUs or memory than its GPUs are of its booking's nodes; `broken_rules` names the fields."""

    def __init__(self, detail: str, broken_rules: Sequence[RuleBreach] = ()) -> None:
        super().__init__(detail)
        self.broken_rules = tuple(broken_rules)


class NotKeptError(DomainError, code="no_node_keeps_that"):
    """A job without GPUs asks for more CPUs or memory than any node keeps for such jobs."""


class UnknownCallerError(DomainError, code="unauthenticated"):
    """The caller was disabled after the token check; answered as if the token were unknown."""

    def __init__(self, detail: str = "This token is unknown, expired or revoked. Use another token.") -> None:
        super().__init__(detail)


class UserDisabledError(DomainError, code="user_disabled"):
    """The user that the request is for is disabled."""


class NodeAnswersError(DomainError, code="node_answers"):
    """The node is ready, so its pods can't be declared gone."""


class NodeNotFencedError(DomainError, code="node_not_fenced"):
    """The node is not fenced."""


class NotPermittedError(DomainError, code="not_permitted"):
    """The policy refuses the request; `broken_rules` holds every broken rule (see `rules.check`)."""

    def __init__(self, detail: str, broken_rules: Sequence[RuleBreach] = ()) -> None:
        super().__init__(detail)
        self.broken_rules = tuple(broken_rules)


class NotBookableError(DomainError, code="not_bookable"):
    """A booking is refused: every rule that it breaks, and the nearest free slots [start, end).

    If `detail` names the owner of its GPUs, `owner_id` is theirs, and `nameless` is the error for users who may not
    see owners.
    """

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


class NotChangeableError(DomainError, code="not_changeable"):
    """The booking, or the element of an array, has a status in which this can't be changed."""


class WrongCodeError(DomainError, code="wrong_code"):
    """The code to confirm an address is not the one that was mailed."""


class UnreachableTargetError(DomainError, code="unreachable_target"):
    """This server can't send notifications to that target."""


class PublicKeyRefusedError(DomainError, code="public_key_refused"):
    """The text is no public SSH key, or a key of a kind that is not accepted."""


class NotShareableError(DomainError, code="not_shareable"):
    """The job can't be shared with this user."""


class NotOfferedError(DomainError, code="not_offered"):
    """The booking has no open offer to accept or decline."""


class ProofRefusedError(DomainError, code="proof_refused"):
    """The proof of a sign-in is not valid: forged, expired, used before, or meant for another server."""


class SignInRefusedError(DomainError, code="not_let_in"):
    """The identity is proved, but no rule maps it to a user, or that user may not sign in this way."""


class JobNotRunningError(DomainError, code="job_not_running"):
    """The job has not started or is over, so nobody can enter it."""


class TooManyConnectionsError(DomainError, code="too_many_connections"):
    """The user has as many connections to jobs as a user may have."""
