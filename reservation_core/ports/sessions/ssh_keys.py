"""SSH keys of people and of the server."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ServerKeyUnreadableError(Exception):
    """A key of the server is sealed with a key that this process does not have. The text says what to do."""


class ServerKeyPurpose(StrEnum):
    """The keys of the server. Stored."""

    HOST = "host"
    CERTIFICATES = "certificates"
    JOB_TOKENS = "job_tokens"


@dataclass(frozen=True, slots=True)
class ServerKey:
    """A key of the server in OpenSSH's forms: the file of a private key, and one line."""

    private_key: str = field(repr=False)
    public_key: str


@dataclass(frozen=True, slots=True)
class NewSshKey:
    """A person's key. `fingerprint`: 32 bytes; `public_key`: one line without a comment."""

    id: str
    user_id: int
    name: str | None
    fingerprint: bytes
    public_key: str


@dataclass(frozen=True, slots=True)
class SshKeyRecord:
    id: str
    user: str
    name: str | None
    fingerprint: bytes
    public_key: str
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """An enabled user with this key."""

    key_id: str
    user_id: int
    user: str
