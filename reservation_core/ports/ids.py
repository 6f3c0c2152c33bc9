"""Where ids and secrets come from."""

from typing import Protocol


class IdSource(Protocol):
    """Fresh, typed, sayable ids such as `job-7f3k9q2m`, and secrets."""

    def new_id(self, prefix: str) -> str:
        """A fresh id `<prefix>-<8 characters of Crockford base 32>`."""
        ...

    def new_secret(self) -> str:
        """A fresh bearer token (at least 256 bits)."""
        ...

    def digest(self, secret: str) -> bytes:
        """What is stored of a secret: its SHA-256."""
        ...
