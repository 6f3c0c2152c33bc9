"""The audit log over REST: who did what to what, when and why."""

from typing import Annotated, Any

from pydantic import AwareDatetime, Field, PlainSerializer

from reservation_core.contracts.base import Line, ReasonOut, Time, Wire
from reservation_core.domain.history.audit_chain import AuditedEvent, ChainLine, MissingEvent, exact
from reservation_core.domain.user_names import LONGEST_USER_NAME

KindText = Annotated[str, Field(strict=True, max_length=64, pattern="^[a-z][a-z0-9_]*$")]
Actor = Annotated[Line, Field(min_length=1, max_length=LONGEST_USER_NAME)]
Subject = Annotated[Line, Field(min_length=1, max_length=300)]


class EventOut(Wire):
    """One line of the audit log.

    `subject` is the id of a job, booking, window or token, or names what else it is about: `user:ann`,
    `project:vision`, `policy:default`, a node, a GPU (`node1/0`), a pod. `actor` is a user, or `system`.
    """

    id: int
    at: Time
    kind: str
    actor: str
    subject: str | None
    before: str | None
    after: str | None
    reason_code: str | None
    reason: str | None
    data: dict[str, Any]


Digest = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]
ExactTime = Annotated[AwareDatetime, PlainSerializer(exact, return_type=str, when_used="json")]
"""To the microsecond, as it is hashed."""


class AuditedEventOut(Wire):
    """An event as it is stored; its digest covers every field. Lists show a `reason` of `data` where it has none."""

    id: int
    at: ExactTime
    actor: str
    kind: str
    reservation_id: str | None
    subject: str | None
    before: str | None
    after: str | None
    reason_code: str | None
    reason: str | None
    data: dict[str, Any]


class MissingEventOut(Wire):
    """A link of the chain whose event is missing: `content` is the event's digest."""

    id: int
    at: ExactTime
    content: Digest
    removed_by_retention: bool


class ChainLineOut(Wire):
    """One line of the audit log, in the order of the chain.

    `digest` covers `previous` (the digest at the position before), the position, and the event's id, time and digest.
    An event without a position is not in the chain. Either `event` or `missing` is set.
    """

    position: int | None
    previous: Digest | None
    digest: Digest | None
    event: AuditedEventOut | None
    missing: MissingEventOut | None

    @classmethod
    def of(cls, line: ChainLine) -> "ChainLineOut":
        """Convert from the domain."""
        return cls.model_validate(line, from_attributes=True)

    def line(self) -> ChainLine:
        """Convert for `ChainCheck`."""
        return ChainLine(
            self.position,
            self.previous,
            self.digest,
            None if self.event is None else AuditedEvent(**self.event.model_dump()),
            None if self.missing is None else MissingEvent(**self.missing.model_dump()),
        )


class ChainHeadOut(Wire):
    """The newest link of the chain.

    Its position and digest, kept elsewhere, prove later that no earlier event was changed. `first_position` is the
    first that can be checked; `unchained_since` is the time of the oldest event that is not chained yet.
    """

    position: int
    digest: Digest
    event_id: int
    chained_at: Time
    first_position: int
    unchained_since: Time | None


class JobEvent(Wire):
    """One event of a job, as its event stream sends it."""

    id: int
    at: Time
    kind: str
    actor: str
    before: str | None
    after: str | None
    reason: ReasonOut | None
    data: dict[str, Any]
