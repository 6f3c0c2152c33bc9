"""The form that makes a token."""

from typing import Any

from api_service.web.form import Form

SCOPES = {
    "": "everything that you may do",
    "read": "looking",
    "read submit": "looking, and jobs",
    "read book": "looking, and bookings",
}
"""The choices of the form, by the scopes that they send. `gpu-dev tokens create` offers any combination."""


def token_asked(form: Form) -> dict[str, Any]:
    """A body for POST /v1/tokens."""
    asked: dict[str, Any] = {}
    if (name := form.get("name")) is not None:
        asked["name"] = name
    if (lasts := form.duration("expires_in")) is not None:
        asked["expires_in"] = lasts
    if scopes := (form.get("scopes") or "").split():
        asked["scopes"] = scopes
    return asked
