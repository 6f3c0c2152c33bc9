"""The form that creates a token."""

from collections.abc import Sequence
from typing import Any

from api_service.problems import ProblemError
from api_service.web.visit import Visit
from reservation_core.domain.statuses import TokenScope

SCOPES = {
    "": "everything",
    "read": "reading only",
    "read submit": "reading, and jobs",
    "read book": "reading, and bookings",
}
"""The choices of the form by their scopes. `gpu-dev tokens create` offers any combination."""


def scope_words(scopes: Sequence[TokenScope]) -> str:
    """The scopes of a token, in the words of the form where it offers them."""
    if len(scopes) == len(TokenScope):
        return SCOPES[""]
    choices = {frozenset(choice.split()): words for choice, words in SCOPES.items() if choice}
    return choices.get(frozenset(scopes)) or ", ".join(scopes)


def token_asked(visit: Visit) -> dict[str, Any]:
    """A body for POST /v1/tokens. Raises ProblemError (422) for an invalid number or time."""
    form = visit.form
    asked: dict[str, Any] = {}
    if (name := form.get("name")) is not None:
        asked["name"] = name
    if (lasts := form.duration("expires_in")) is not None:
        asked["expires_in"] = lasts
    if scopes := (form.get("scopes") or "").split():
        asked["scopes"] = scopes
    hours, until = form.decimal("gpu_hours", "The budget"), form.get("until")
    if hours is not None:
        asked["budget"] = {"gpu_hours": hours} | ({} if until is None else {"until": visit.instant(until)})
    elif until is not None:
        raise ProblemError(422, "invalid_request", "The budget has an end, but no GPU-hours. Say how many.")
    return asked
