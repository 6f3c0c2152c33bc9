"""Notifications over REST: targets and preferences, the body of webhooks, and the queue's messages."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from reservation_core.contracts.base import Line, Time, Wire, with_example
from reservation_core.domain.network.notice_addresses import address_fault
from reservation_core.domain.notices.kinds import NoticeChannel, NoticeKind, TargetStatus


class NoticeTargetCreate(Wire):
    """A new notification target: an e-mail address, a Slack-compatible incoming webhook, or a webhook."""

    model_config = with_example(channel="email", address="ada@example.org")

    channel: NoticeChannel
    address: Annotated[Line, Field(min_length=3, max_length=2000)]
    name: Annotated[Line, Field(min_length=1, max_length=200)] | None = None

    @model_validator(mode="after")
    def _check_address(self) -> "NoticeTargetCreate":
        if (fault := address_fault(self.channel, self.address)) is not None:
            raise ValueError(fault)
        return self


class NoticeTargetVerify(Wire):
    """The confirmation code that was mailed."""

    code: Annotated[Line, Field(min_length=1, max_length=64)]


class NoticeTargetOut(Wire):
    """A notification target. Of a URL only the host is shown, since its path may hold a secret."""

    id: str
    user: str
    channel: NoticeChannel
    name: str | None
    address: str
    status: TargetStatus
    created_at: Time
    verified_at: Time | None
    delivered_at: Time | None
    failed_at: Time | None
    failure: str | None


class NoticeTargetCreated(NoticeTargetOut):
    """A new target with a webhook's signing secret, which is shown only once; null for other channels."""

    secret: str | None


class NoticePreferences(Wire):
    """The channels for each kind of notification. Kinds left out of a request get their default."""

    model_config = with_example(kinds={"started": ["email"], "ended": []})

    kinds: Annotated[
        dict[NoticeKind, Annotated[list[NoticeChannel], Field(max_length=len(NoticeChannel))]],
        Field(max_length=len(NoticeKind)),
    ]
    unavailable: Annotated[
        list[NoticeChannel],
        Field(default_factory=list, max_length=len(NoticeChannel), description="Read-only: ignored in a request."),
    ]


class NoticePreferencesOut(NoticePreferences):
    """The preferences, and the channels by which this server can't send: email without a mail server."""

    unavailable: Annotated[list[NoticeChannel], Field(default_factory=list)]


class NoticeQueued(Wire):
    """A queued test notification; the target shows the result. The receiver sees `delivery` as the id."""

    delivery: str


class ReservationInNotice(Wire):
    """The subject of a notification, as it was when the notification was sent."""

    id: str
    kind: str
    name: str | None
    status: str
    gpus: int
    nodes: int
    gpu_type: str | None
    starts_at: Time | None
    ends_at: Time | None


class NoticeBody(Wire):
    """The body of a webhook call. `id` stays the same when it is delivered again."""

    v: Literal[1] = 1
    id: str
    kind: str
    at: Time
    user: str
    subject: str
    text: str
    reservation: ReservationInNotice | None


class NoticeMessage(BaseModel):
    """A message in `notifications`: notify a target of an event, test the target, or mail its confirmation code."""

    model_config = ConfigDict(extra="ignore", strict=True)

    v: Literal[1] = 1
    kind: Literal["event", "test", "verification"]
    target: Annotated[str, Field(min_length=1, max_length=64)]
    event: Annotated[int, Field(ge=1)] | None = None
    delivery: Annotated[str, Field(max_length=64)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_reference(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("event" if value.get("kind") == "event" else "delivery") is None:
            raise ValueError("an event's message names the event, every other its delivery")
        return value
