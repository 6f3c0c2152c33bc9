"""Connections to running jobs and their apps, and SSH keys and certificates, over REST."""

from typing import Annotated

from pydantic import Field

from reservation_core.contracts.base import Line, Text, Time, Wire, with_example
from reservation_core.domain.sessions.ways_in import Way

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMYb3q9Xj4YQ8F1W3QWp0aC4s0r1nF0wq9c0J9d6f3Jk"
PublicKeyLine = Annotated[
    Text,
    Field(min_length=1, max_length=16_384, description="One line in OpenSSH's form: Ed25519, ECDSA, RSA or `sk-`."),
]


class JobConnection(Wire):
    """An open connection to a job. `last_byte_at` is right within some seconds."""

    user: str
    way: Way
    address: str | None
    opened_at: Time
    last_byte_at: Time


class JobTerminal(Wire):
    """A terminal that a running job keeps. `name`: the number of its device; `program`: what runs in its foreground.

    `user` opened it.
    """

    name: str
    user: str
    opened_at: Time
    program: str


class AppTicketMake(Wire):
    """A port of a running job at which an app listens, such as a notebook."""

    model_config = with_example(port=8888)

    port: Annotated[int, Field(strict=True, ge=1, le=65_535)]


class AppTicketOut(Wire):
    """The address that opens an app in a browser, once and until `expires_at`."""

    url: str
    expires_at: Time


class SshKeyAdd(Wire):
    """A public SSH key of the caller. Without a `name` its comment becomes its name."""

    model_config = with_example(public_key=f"{_KEY} ann@laptop", name="laptop")

    public_key: PublicKeyLine
    name: Annotated[Line, Field(min_length=1, max_length=200)] | None = None


class SshKeyOut(Wire):
    """A public SSH key. `last_used_at`: when it last opened an SSH connection."""

    id: str
    user: str
    name: str | None
    type: str
    fingerprint: str
    public_key: str
    created_at: Time
    last_used_at: Time | None


class SshCertificateIssue(Wire):
    """A public key to sign. It need not be one of the caller's keys."""

    model_config = with_example(public_key=_KEY)

    public_key: PublicKeyLine


class SshCertificateOut(Wire):
    """A certificate for the caller's name, and the host key of the servers that take it; each is one line."""

    certificate: str
    valid_until: Time
    host_key: str
