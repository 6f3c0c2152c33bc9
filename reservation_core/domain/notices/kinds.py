"""Kinds of notifications, the channels that deliver them, and the states of targets."""

from collections.abc import Mapping
from enum import StrEnum

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
    NoticeKind.PROMISE_MISSED: "A job lost its promised start, or did not start at it.",
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
