"""Being told: where people want to hear of what, and what carries it there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from reservation_core.domain.notices import Notice, NoticeChannel, NoticeKind, TargetStatus

Preferences = dict[NoticeKind, frozenset[NoticeChannel]]
"""For each kind the channels by which somebody wants to hear of it."""


@dataclass(frozen=True, slots=True)
class SaidPreferences:
    """What somebody wants to hear of, every kind, and the number of the version: each change counts it up."""

    kinds: Preferences
    version: int


class NotTakenError(Exception):
    """A notice could not be delivered now; another time it may be. The text is shown to the target's owner."""


class NeverTakenError(Exception):
    """A notice can't be delivered there, now or later. The text is shown to the target's owner."""


@dataclass(frozen=True, slots=True)
class NoticeTarget:
    """Where somebody is told. `failure` is why the last notice did not arrive; `told`: events are sent to it."""

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
        """How it stands."""
        if self.verified_at is None:
            return TargetStatus.UNVERIFIED
        if not self.told:
            return TargetStatus.SUSPENDED
        return TargetStatus.READY if self.failure is None else TargetStatus.FAILING


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A target to be stored. `secret` signs a webhook's bodies, `code` is what the owner of a mailbox has to repeat."""

    id: str
    user_id: int
    channel: NoticeChannel
    name: str | None
    address: str = field(repr=False)
    secret: str | None = field(repr=False)
    code: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Destination:
    """What delivering needs of a target, with its secrets."""

    target: NoticeTarget
    secret: str | None = field(repr=False)
    code: str | None = field(repr=False)


class NoticeSender(Protocol):
    """Carries notices by one channel."""

    async def send(self, to: Destination, notice: Notice) -> None:
        """Deliver once; returns when the receiver has taken it. Raises NotTakenError, NeverTakenError."""
        ...


NoticeSenders = Mapping[NoticeChannel, NoticeSender]
