"""Settings of notifications: how they are sent, and to which addresses."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from reservation_core.adapters.notices.security import SmtpSecurity
from reservation_core.domain.network.egress import egress_rules
from reservation_core.runtime.settings.section import Seconds, Section, split


def _destinations(value: tuple[str, ...]) -> tuple[str, ...]:
    egress_rules(value, public=True)
    return value


Destinations = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=254)], ...],
    NoDecode,
    BeforeValidator(split),
    Field(max_length=1000),
    AfterValidator(_destinations),
]


class SmtpSettings(Section):
    """The mail server for notifications. Its password is a separate secret: GPU_DEV_SMTP_PASSWORD, or a file."""

    host: Annotated[str, Field(min_length=1, max_length=253)] | None = None  # without it, no notifications by mail
    port: Annotated[int, Field(ge=1, le=65_535)] = 587
    security: SmtpSecurity = SmtpSecurity.STARTTLS
    user: Annotated[str, Field(min_length=1, max_length=254)] | None = None
    sender: Annotated[str, Field(max_length=254, pattern=r"^[!-?A-~]+@[A-Za-z0-9.-]+$")] | None = None


class NoticeSettings(Section):
    """How notifications are sent, and to which addresses."""

    # Hosts, .domains, addresses and CIDR ranges that are allowed even if they are private or without TLS.
    allow: Destinations = ()
    public: bool = True  # allow all public addresses over https, besides `allow`
    ca_file: Path | None = None  # PEM: certificate authorities to trust in addition to the system's
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 10
    parallel: Annotated[int, Field(ge=1, le=200)] = 16
    per_s: Annotated[float, Field(gt=0, le=10_000)] = 50
    tries: Annotated[int, Field(ge=1, le=50)] = 8
    first_pause_s: Seconds = 5  # after the first failure; grows by a factor of four
    longest_pause_s: Seconds = 6 * 3600
    oldest_s: Seconds = 86_400
    sweep_s: Seconds = 1
    visibility_s: Seconds = 30
