"""Signing webhooks, so that receivers know who sent them and that nobody changed or replayed them."""

import hashlib
import hmac

SIGNATURE_HEADER = "X-GPU-Dev-Signature"
DELIVERY_HEADER = "X-GPU-Dev-Delivery"


def signature(secret: str, at: int, body: bytes) -> str:
    """The header's value: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`."""
    return f"t={at},v1={_mac(secret, at, body)}"


def verified(secret: str, header: str, body: bytes, *, now: int, tolerance_s: int = 300) -> bool:
    """Whether a body was signed with this secret, at most `tolerance_s` ago."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    at, mac = parts.get("t", ""), parts.get("v1", "")
    if not (at.isascii() and at.isdigit()) or abs(now - int(at)) > tolerance_s:
        return False
    return hmac.compare_digest(_mac(secret, int(at), body), mac)


def _mac(secret: str, at: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
