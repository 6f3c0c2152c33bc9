"""Sign webhooks against forgery, changes and replay; docs/guides/notifications.md says how to verify a signature."""

import hashlib
import hmac

SIGNATURE_HEADER = "X-GPU-Dev-Signature"
DELIVERY_HEADER = "X-GPU-Dev-Delivery"


def signature(secret: str, at: int, body: bytes) -> str:
    """The header's value: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`."""
    mac = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"
