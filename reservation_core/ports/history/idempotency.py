"""Stored answers for repeated requests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The answer to a request with an Idempotency-Key."""

    request_hash: bytes
    status: int
    body: bytes
