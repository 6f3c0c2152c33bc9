"""Notifications: what one is about, and those that are sent to try an address. No secrets."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reservation_core.domain.notices.kinds import NoticeKind


@dataclass(frozen=True, slots=True)
class NotifiedReservation:
    """The reservation that a notification is about, as it is now. `gpus` is per node.

    A job's `ends_at` is set once it runs; a booking's times are its slot's.
    """

    id: str
    kind: str
    name: str | None
    status: str
    gpus: int
    nodes: int
    gpu_type: str | None
    starts_at: datetime | None
    ends_at: datetime | None
    offer_until: datetime | None = None
    release_at: datetime | None = None

    @property
    def is_job(self) -> bool:
        return self.kind == "job"


@dataclass(frozen=True, slots=True)
class NoticedEvent:
    """The event behind a notification: its kind in the audit log, its actor, reason and data; what it is about."""

    kind: NoticeKind
    event: str
    at: datetime
    actor: str
    reason: str | None
    data: dict[str, Any] = field(default_factory=dict)
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification to deliver. `id` stays the same when it is delivered again, so that receivers can tell.

    `kind` is a NoticeKind, `test` or `verification`; `about` is None for these.
    """

    id: str
    kind: str
    at: datetime
    user: str
    subject: str
    text: str
    about: NotifiedReservation | None = None


def trial_notice(*, user: str, delivery: str, at: datetime) -> Notice:
    """A test notification, which the owner of a target requested."""
    text = "This is a test: notifications about your jobs and bookings arrive here."
    return Notice(delivery, "test", at, user, "[gpu-dev] A test", text)


def verification_notice(code: str, *, target: str, user: str, delivery: str, at: datetime) -> Notice:
    """The mail with the code that confirms an address."""
    text = (
        f"The user {user} wants to receive notifications about GPU jobs and bookings at this address.\n\n"
        f"If that is you, confirm it with this code: {code}\n\n"
        f"  gpu-dev notify verify {target} {code}\n\n"
        "or type it on the page of your account. If it is not you, do nothing: no other message will come."
    )
    return Notice(delivery, "verification", at, user, "[gpu-dev] Confirm this address", text)


def one_line(text: str, longest: int) -> str:
    """Text without line breaks and control characters, of at most `longest` characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= longest else words[: longest - 1] + "…"
