"""Being told: where people want to hear of what, and what carries it there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from reservation_core.domain.notices import Notice, NoticeChannel, NoticedEvent, NoticeKind, TargetStatus, ToldOf

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


class Notices(Protocol):
    """Targets, preferences, and what delivering needs to know."""

    async def add_target(self, new: NewTarget, *, most: int, most_a_day: int, now: datetime) -> NoticeTarget:
        """Raises LimitExceededError when the user has `most` already, or made `most_a_day` within a day."""
        ...

    async def targets(self, user_id: int | None, *, after: str | None, limit: int) -> list[NoticeTarget]:
        """By id; None means everybody's."""
        ...

    async def target(self, target_id: str, user_id: int | None) -> NoticeTarget | None:
        """None when this user (None: anybody) has no such target."""
        ...

    async def remove_target(self, target_id: str, user_id: int | None, now: datetime) -> NoticeTarget | None:
        """Forget its address and secrets; answers what it was."""
        ...

    async def verify_target(self, target_id: str, user_id: int, code: str, now: datetime) -> bool:
        """Whether the code was right; then it is verified."""
        ...

    async def claim_test(self, target_id: str, now: datetime, not_since: datetime) -> bool:
        """Note a test now; false when there was one after `not_since`."""
        ...

    async def preferences(self, user_id: int) -> SaidPreferences:
        """Every kind, with what was said or else the default."""
        ...

    async def lock_preferences(self, user_id: int) -> int:
        """Keep others from changing them until the transaction ends; answers their version."""
        ...

    async def prefer(self, user_id: int, preferences: Preferences) -> None:
        """Replace what was said, as the next version; kinds that are left out have their default again."""
        ...

    async def destination(self, target_id: str) -> Destination | None:
        """A target that is not removed and whose user is not disabled."""
        ...

    async def occasion(self, event_id: int) -> tuple[NoticedEvent, ToldOf | None] | None:
        """The event and its reservation, if it is about one, as it stands; None for what nobody is told of."""
        ...

    async def note_delivered(self, target_id: str, now: datetime) -> None:
        """It works (again)."""
        ...

    async def note_failed(self, target_id: str, why: str, now: datetime, *, lost: bool) -> None:
        """It did not work; `lost`: the notice is given up."""
        ...
