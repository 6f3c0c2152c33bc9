"""Fresh readable ids, and bearer tokens."""

import hashlib
import secrets

# Crockford's base 32 in lower case, without i, l, o and u.
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_TWO = [first + second for first in _CROCKFORD for second in _CROCKFORD]
_BYTES = 5
_BYTES_AT_ONCE = 100 * _BYTES


class RandomIds:
    """Ids and secrets from the operating system's random source."""

    def __init__(self) -> None:
        self._random = b""
        self._used = 0

    def new_id(self, prefix: str) -> str:
        """A fresh id such as `job-7f3k9q2m` (40 random bits; the database refuses collisions)."""
        if self._used == len(self._random):
            # A system call for every id would dominate its cost.
            self._random, self._used = secrets.token_bytes(_BYTES_AT_ONCE), 0
        chunk = self._random[self._used : self._used + _BYTES]
        self._used += _BYTES
        bits = int.from_bytes(chunk)
        return f"{prefix}-{_TWO[bits >> 30]}{_TWO[bits >> 20 & 1023]}{_TWO[bits >> 10 & 1023]}{_TWO[bits & 1023]}"

    def new_secret(self, prefix: str = "gpudev") -> str:
        """A fresh secret with 256 random bits, by default a bearer token."""
        return f"{prefix}_{secrets.token_urlsafe(32)}"

    def digest(self, secret: str) -> bytes:
        """SHA-256; a random 256-bit secret needs no slow hash."""
        return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
