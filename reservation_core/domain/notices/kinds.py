"""Kinds of notifications, what one is about, and those that are sent to try an address. No secrets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

NO_MAIL = (
    "This server has no mail server, so it can't send e-mail. Ask an administrator to set GPU_DEV_SMTP__HOST and "
    "GPU_DEV_SMTP__SENDER, or add a Slack or webhook address instead."
)


class NoticeChannel(StrEnum):
    """How a notification is delivered."""

    EMAIL = "email"
    SLACK = "slack"
    WEBHOOK = "webhook"


class NoticeKind(StrEnum):
    """The kinds of notifications; users choose them by channel. Stable: webhooks match on it."""

    CONFIRMED = "confirmed"
    MOVED = "moved"
    CANCELLED = "cancelled"
    WAITLISTED = "waitlisted"
    OFFERED = "offered"
    OFFER_EXPIRED = "offer_expired"
    STARTING_SOON = "starting_soon"
    STARTED = "started"
    ENDING_SOON = "ending_soon"
    ENDED = "ended"
    NO_SHOW = "no_show"
    RELEASED = "released"
    FAILED = "failed"
    PROMISE_MISSED = "promise_missed"
    MAINTENANCE = "maintenance"
    IDLE = "idle"
    PREEMPTED = "preempted"
    GPU_HEALTH = "gpu_health"
    DIGEST = "digest"


KIND_MEANINGS: Mapping[NoticeKind, str] = {
    NoticeKind.CONFIRMED: "A booking is made.",
    NoticeKind.MOVED: "A booking has another time or other GPUs.",
    NoticeKind.CANCELLED: "A job or booking is cancelled.",
    NoticeKind.WAITLISTED: "A booking is put on the waitlist.",
    NoticeKind.OFFERED: "A slot is offered to a booking on the waitlist.",
    NoticeKind.OFFER_EXPIRED: "An offer expired without an answer.",
    NoticeKind.STARTING_SOON: "A booking starts soon.",
    NoticeKind.STARTED: "A job or booking started.",
    NoticeKind.ENDING_SOON: "A job or booking ends soon.",
    NoticeKind.ENDED: "A job or booking ended.",
    NoticeKind.NO_SHOW: "Nothing uses a booking; it is released soon.",
    NoticeKind.RELEASED: "A booking was released because nothing used it.",
    NoticeKind.FAILED: "A job failed, or a booking could not be kept.",
    NoticeKind.PROMISE_MISSED: "A job did not start at its promised start.",
    NoticeKind.MAINTENANCE: "A maintenance window affects a job or booking.",
    NoticeKind.IDLE: "The GPUs of a job are idle.",
    NoticeKind.PREEMPTED: "A job gave its GPUs back and waits again.",
    NoticeKind.GPU_HEALTH: "A GPU of a job is quarantined. Administrators: any GPU is quarantined or slow.",
    NoticeKind.DIGEST: "Once a week: what a project of yours held, used and wasted, and what would have been enough.",
}
"""What each kind says, for people who choose."""


class TargetStatus(StrEnum):
    """The state of a target: not confirmed, working, last delivery failed, or suspended until a test."""

    UNVERIFIED = "unverified"
    READY = "ready"
    FAILING = "failing"
    SUSPENDED = "suspended"


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
