"""The token in every form, so that no other site can send it: only the session's secret can make one.

Each page has a fresh one (a mask and its result), so that compressing pages reveals nothing about it.
"""

import hashlib
import hmac
import re
import secrets

FIELD = "csrf_token"
HEADER = "x-csrf-token"
_MASK_BYTES = 16
_WRITTEN = re.compile(r"[0-9a-f]{96}")


def made_for(secret: str) -> str:
    """A token for the session with this secret."""
    mask = secrets.token_bytes(_MASK_BYTES)
    return mask.hex() + _proof(secret, mask)


def is_for(secret: str, given: str | None) -> bool:
    """Whether this token was made for the session with this secret."""
    if given is None or _WRITTEN.fullmatch(given) is None:
        return False
    mask = bytes.fromhex(given[: 2 * _MASK_BYTES])
    return hmac.compare_digest(given[2 * _MASK_BYTES :], _proof(secret, mask))


def _proof(secret: str, mask: bytes) -> str:
    return hmac.new(secret.encode(), b"csrf" + mask, hashlib.sha256).hexdigest()
