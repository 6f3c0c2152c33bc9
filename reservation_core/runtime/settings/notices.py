"""Settings of notices: how people are told, and where notices may go."""

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
    """The mail server that takes notices. Its password is a secret of its own: GPU_DEV_SMTP_PASSWORD, or a file."""

    host: Annotated[str, Field(min_length=1, max_length=253)] | None = None  # without one nobody is told by mail
    port: Annotated[int, Field(ge=1, le=65_535)] = 587
    security: SmtpSecurity = SmtpSecurity.STARTTLS
    user: Annotated[str, Field(min_length=1, max_length=254)] | None = None
    sender: Annotated[str, Field(max_length=254, pattern=r"^[!-?A-~]+@[A-Za-z0-9.-]+$")] | None = None


class NoticeSettings(Section):
    """How people are told, and where notices may go."""

    # Hosts, .domains, addresses and CIDR ranges that may be reached even where they are private or without TLS.
    allow: Destinations = ()
    public: bool = True  # every public address over https, or only what `allow` lists
    ca_file: Path | None = None  # PEM: whom to trust beside the system's certificate authorities
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 10
    parallel: Annotated[int, Field(ge=1, le=200)] = 16
    per_s: Annotated[float, Field(gt=0, le=10_000)] = 50
    tries: Annotated[int, Field(ge=1, le=50)] = 8
    first_pause_s: Seconds = 5  # after the first failure; four times as long after each further one
    longest_pause_s: Seconds = 6 * 3600
    oldest_s: Seconds = 86_400
    sweep_s: Seconds = 1
    visibility_s: Seconds = 30
