"""The wire: what clients send and get over REST, by whatever subject.

Unknown fields are refused, every field has bounds, numbers are not read out of strings.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Generic, TypeVar
from unicodedata import category

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from reservation_core.domain.user_names import USER_NAME, folded

T = TypeVar("T")

LONGEST_DURATION = timedelta(days=90)
MAX_GPUS_PER_NODE = 64
MAX_NODES = 256

_UNSEEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _clean(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    return text


def _harmless(text: str) -> str:
    """No control characters but line breaks and tabs, nor any that turn the order of what is read."""
    wrong = next((c for c in text if c not in "\n\t" and (category(c) in _UNSEEN or c in _TURNING)), None)
    if wrong is not None:
        raise ValueError(f"must not contain the control character U+{ord(wrong):04X}")
    return text


def _one_line(text: str) -> str:
    if "\n" in text or "\t" in text:
        raise ValueError("must be one line without tabs")
    return text


def _seconds(value: object) -> object:
    """Durations are a number of seconds or ISO 8601; nothing else that a timedelta could be read from."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | timedelta):
        raise ValueError("must be a number of seconds or an ISO 8601 duration such as PT4H")  # noqa: TRY004 - pydantic
    if isinstance(value, str) and not value.startswith(("P", "p")):
        raise ValueError("must be a number of seconds or an ISO 8601 duration such as PT4H")
    if isinstance(value, int | float) and not 0 < value < 10**9:
        raise ValueError("must be greater than 0 seconds and at most 90 days")
    return value


def _whole_seconds(value: timedelta) -> timedelta:
    if value.microseconds:
        raise ValueError("must be whole seconds")
    return value


def rfc3339(value: datetime) -> str:
    """A time as the wire has it, to the millisecond."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Text = Annotated[str, Field(strict=True), AfterValidator(_clean)]
Prose = Annotated[Text, AfterValidator(_harmless)]
"""What people read."""
Line = Annotated[Prose, AfterValidator(_one_line)]
"""The same on one line: names above all."""
Time = Annotated[AwareDatetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]
Place = Annotated[int, Field(ge=1)]
Duration = Annotated[
    timedelta,
    BeforeValidator(_seconds, json_schema_input_type=int | str),
    Field(ge=timedelta(seconds=1), le=LONGEST_DURATION),
    AfterValidator(_whole_seconds),
]
GpuTypeName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
ExactUserName = Annotated[str, Field(strict=True, pattern=rf"^{USER_NAME}$")]
"""For names that come from elsewhere, where `Ann` and `ann` may be two people."""
UserName = Annotated[
    ExactUserName,
    BeforeValidator(lambda name: folded(name) if isinstance(name, str) else name, json_schema_input_type=str),
]
ProjectName = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")]


class Wire(BaseModel):
    """Base of everything on the wire."""

    model_config = ConfigDict(extra="forbid", ser_json_timedelta="iso8601", hide_input_in_errors=True)


class Page(Wire, Generic[T]):
    """One page of a list; `next_cursor` is null at the end."""

    items: list[T]
    next_cursor: str | None


class BrokenRule(Wire):
    """One rule that a request broke."""

    code: str
    detail: str


class Slot(Wire):
    """A time that would do."""

    start: Time
    end: Time


class Problem(Wire):
    """RFC 9457 problem details; `detail` says what to do next."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    broken_rules: list[BrokenRule] | None = None
    nearest_slots: list[Slot] | None = None
