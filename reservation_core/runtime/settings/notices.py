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

    # The mail server; none: no notifications by mail
    host: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    port: Annotated[int, Field(ge=1, le=65_535)] = 587  # the mail server's port
    # How the connection is encrypted: starttls; tls, from the start, usually port 465; none
    security: SmtpSecurity = SmtpSecurity.STARTTLS
    # The account at the mail server; its password is GPU_DEV_SMTP_PASSWORD
    user: Annotated[str, Field(min_length=1, max_length=254)] | None = None
    # The address that mail comes from; needed with a mail server.
    sender: Annotated[str, Field(max_length=254, pattern=r"^[!-?A-~]+@[A-Za-z0-9.-]+$")] | None = None


class NoticeSettings(Section):
    """How notifications are sent, and to which addresses."""

    # Hosts, .domains, addresses and CIDR ranges that are allowed even if they are private or without TLS.
    allow: Destinations = ()
    public: bool = True  # allow all public addresses over https, besides GPU_DEV_NOTICES__ALLOW
    ca_file: Path | None = None  # PEM: certificate authorities to trust in addition to the system's
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 10  # longest time of a delivery (mail: of each step)
    parallel: Annotated[int, Field(ge=1, le=200)] = 16  # deliveries at the same time, per processor
    per_s: Annotated[float, Field(gt=0, le=10_000)] = 50  # deliveries a second, per processor
    tries: Annotated[int, Field(ge=1, le=50)] = 8  # how often a notification is tried
    first_pause_s: Seconds = 5  # pause after the first failed try; each further pause is four times as long
    longest_pause_s: Seconds = 6 * 3600  # longest pause between two tries
    oldest_s: Seconds = 86_400  # how long a notification is tried; an older one is given up
    sweep_s: Seconds = 1  # time between two looks for notifications to send, besides every wake-up
    visibility_s: Seconds = 30  # how long a notification that is being sent is hidden from other processors
