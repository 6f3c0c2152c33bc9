"""Notifications as plain-text mail over SMTP."""

import ssl
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

import aiosmtplib

from reservation_core.adapters.notices.security import SmtpSecurity
from reservation_core.domain.notices.messages import Notice
from reservation_core.ports.clock import Clock
from reservation_core.ports.people.notices import Destination, NotDeliveredError, UndeliverableError


@dataclass(frozen=True, slots=True)
class MailServer:
    """The mail server and our account there. `sender` is an address, `timeout_s` bounds every step."""

    host: str
    port: int
    security: SmtpSecurity
    sender: str
    user: str | None
    password: str | None = field(repr=False)
    timeout_s: float
    tls: ssl.SSLContext


class MailSender:
    """See ports.people.notices.NoticeSender."""

    def __init__(self, server: MailServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock

    async def send(self, to: Destination, notice: Notice) -> None:
        """Send a mail once. Raises NotDeliveredError, UndeliverableError."""
        server = self._server
        try:
            message = mail(notice, sender=server.sender, to=to.target.address)
            message["Date"] = format_datetime(self._clock.now())
        except ValueError as error:
            raise UndeliverableError("This is not a valid e-mail address. Remove it and add the right one.") from error
        try:
            await aiosmtplib.send(
                message,
                hostname=server.host,
                port=server.port,
                use_tls=server.security is SmtpSecurity.TLS,
                start_tls=server.security is SmtpSecurity.STARTTLS,
                tls_context=None if server.security is SmtpSecurity.NONE else server.tls,
                username=server.user,
                password=server.password,
                timeout=server.timeout_s,
            )
        except (aiosmtplib.SMTPRecipientsRefused, aiosmtplib.SMTPResponseException) as error:
            raise _refusal(error) from error
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise NotDeliveredError(f"The mail server could not be reached: {type(error).__name__}.") from error


def mail(notice: Notice, *, sender: str, to: str) -> EmailMessage:
    """Build the message. Raises ValueError for text that would break out of a header."""
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = to
    message["Subject"] = notice.subject
    # The same for every delivery, so that mail programs show the message once.
    message["Message-ID"] = f"<{notice.id}@{sender.rpartition('@')[2]}>"
    message["X-GPU-Dev-Delivery"] = notice.id
    message["X-GPU-Dev-Kind"] = notice.kind
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(notice.text)
    return message


def _refusal(error: aiosmtplib.SMTPRecipientsRefused | aiosmtplib.SMTPResponseException) -> Exception:
    """The error of a refusal: 4xx is temporary, 5xx permanent, and a refused login is the operator's problem."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        codes = [recipient.code for recipient in error.recipients]
        if codes and all(code >= 500 for code in codes):
            return UndeliverableError(f"The mail server refuses this address (status {codes[0]}).")
        return NotDeliveredError("The mail server does not take mail for this address now.")
    if isinstance(error, aiosmtplib.SMTPDataError | aiosmtplib.SMTPSenderRefused) and error.code >= 500:
        return UndeliverableError(f"The mail server refuses the message (status {error.code}).")
    return NotDeliveredError(f"The mail server answered with status {error.code}.")
