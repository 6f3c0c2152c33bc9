"""The wire of the record: who did what to what, when and why."""

from typing import Annotated, Any

from pydantic import Field

from reservation_core.contracts import Line, Time, Wire
from reservation_core.domain.user_names import LONGEST_USER_NAME

EventKind = Annotated[str, Field(strict=True, max_length=64, pattern="^[a-z][a-z0-9_]*$")]
Actor = Annotated[Line, Field(min_length=1, max_length=LONGEST_USER_NAME)]
Subject = Annotated[Line, Field(min_length=1, max_length=300)]


class EventOut(Wire):
    """One line of the record.

    `subject` is the id of a job, booking, window or token, or names what else it is about: `user:ann`,
    `project:vision`, `policy:default`, a node, a card (`node1/0`), a pod. `actor` is a user, or `system`.
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
