"""Secrets of users: values that jobs get, and nobody reads."""

from dataclasses import dataclass
from datetime import datetime


class SecretUnreadableError(Exception):
    """A secret is sealed with a key that this process does not have, or was changed. Names no value."""


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """A secret without its value."""

    name: str
    created_at: datetime
    updated_at: datetime
