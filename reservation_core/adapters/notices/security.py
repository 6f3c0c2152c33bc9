"""How a connection to a mail server is protected."""

from enum import StrEnum


class SmtpSecurity(StrEnum):
    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"
