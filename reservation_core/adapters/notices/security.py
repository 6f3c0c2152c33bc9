"""How a connection to a mail server is protected."""

from enum import StrEnum


class SmtpSecurity(StrEnum):
    """How the connection to the mail server is protected."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"
