"""Notifications: users' targets and preferences, and delivery."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind, TargetStatus
from reservation_core.domain.notices.messages import Notice

Preferences = dict[NoticeKind, frozenset[NoticeChannel]]
"""The channels of each kind of notification."""


@dataclass(frozen=True, slots=True)
class StoredPreferences:
    """A user's preferences, with every kind, and their version, which each change increments."""

    kinds: Preferences
    version: int


class NotDeliveredError(Exception):
    """A notification could not be delivered now, but may be later. The text is shown to the target's owner."""


class UndeliverableError(Exception):
    """A notification can never be delivered there. The text is shown to the target's owner."""


@dataclass(frozen=True, slots=True)
class NoticeTarget:
    """A user's target. `failure`: why the last delivery failed; `told`: events are sent to it."""

    id: str
    user_id: int
    user: str
    channel: NoticeChannel
    name: str | None
    address: str = field(repr=False)
    created_at: datetime
    verified_at: datetime | None
    delivered_at: datetime | None
    failed_at: datetime | None
    failure: str | None
    told: bool

    @property
    def status(self) -> TargetStatus:
        if self.verified_at is None:
            return TargetStatus.UNVERIFIED
        if not self.told:
            return TargetStatus.SUSPENDED
        return TargetStatus.READY if self.failure is None else TargetStatus.FAILING


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A new target. `secret` signs a webhook's bodies, `code` confirms an e-mail address."""

    id: str
    user_id: int
    channel: NoticeChannel
    name: str | None
    address: str = field(repr=False)
    secret: str | None = field(repr=False)
    code: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Destination:
    """A target with its secrets, for delivery."""

    target: NoticeTarget
    secret: str | None = field(repr=False)
    code: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoticeRoutes:
    """Where the processors can send notifications: whether by mail, and to which addresses (see `egress_rules`)."""

    mail: bool
    allow: tuple[str, ...]
    public: bool


class NoticeSender(Protocol):
    """Delivers notifications by one channel."""

    async def send(self, to: Destination, notice: Notice) -> None:
        """Deliver once; returns when the receiver has accepted it. Raises NotDeliveredError, UndeliverableError."""


NoticeSenders = Mapping[NoticeChannel, NoticeSender]
