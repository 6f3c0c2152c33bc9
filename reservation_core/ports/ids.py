"""The source of ids and secrets."""

from typing import Protocol


class IdSource(Protocol):
    """Fresh ids such as `job-7f3k9q2m`, and secrets."""

    def new_id(self, prefix: str) -> str:
        """A fresh id `<prefix>-<8 characters of Crockford base 32>`."""

    def new_secret(self, prefix: str = "gpudev") -> str:
        """A fresh secret `<prefix>_…` of at least 256 bits; by default a bearer token."""

    def digest(self, secret: str) -> bytes:
        """The stored form of a secret: its SHA-256."""
