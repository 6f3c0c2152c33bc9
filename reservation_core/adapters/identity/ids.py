"""Fresh ids that people can say, and bearer tokens."""

import hashlib
import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_LENGTH = 8


class RandomIds:
    """Ids and secrets from the operating system's random source."""

    def new_id(self, prefix: str) -> str:
        """A fresh id such as `job-7f3k9q2m` (40 random bits; a collision is refused by the database)."""
        number = secrets.randbits(5 * _LENGTH)
        return prefix + "-" + "".join(_ALPHABET[number >> shift & 31] for shift in range(0, 5 * _LENGTH, 5))

    def new_secret(self) -> str:
        """A fresh bearer token with 256 random bits."""
        return "gpudev_" + secrets.token_urlsafe(32)

    def digest(self, secret: str) -> bytes:
        """SHA-256; a random 256-bit secret needs no slow hash."""
        return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
