"""Answers kept for requests that come again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What an Idempotency-Key was answered with."""

    request_hash: bytes
    status: int
    body: bytes
