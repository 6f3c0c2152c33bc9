"""Signing webhooks, so that receivers know who sent them and that nobody changed or replayed them.

How a receiver checks it is in docs/guides/notifications.md; the tests check with what stands there.
"""

import hashlib
import hmac

SIGNATURE_HEADER = "X-GPU-Dev-Signature"
DELIVERY_HEADER = "X-GPU-Dev-Delivery"


def signature(secret: str, at: int, body: bytes) -> str:
    """The header's value: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`."""
    mac = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"
