"""The form that creates a token."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from api_service.problems import ProblemError
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.people import TokenOut
from reservation_core.domain.statuses import TokenScope

_ON_ITS_WAY_S = 5
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


async def own_tokens(visit: Visit) -> list[TokenOut]:
    """The visitor's tokens and sessions that are not revoked."""
    tokens = await visit.rest.all(Page[TokenOut], "/v1/tokens", {"user": visit.principal.user}, at_most=1000)
    return [token for token in tokens if token.revoked_at is None]


async def latest_end(visit: Visit) -> datetime | None:
    """When a token that the visitor makes now ends at the latest; None: never."""
    principal, longest = visit.principal, visit.services.settings.auth.longest_token
    async with visit.services.runtime.uow() as uow:
        maker = await uow.identities.token_reach(principal.session_from or principal.token_id, visit.now)
    ends = [None if maker is None else maker.expires_at, None if longest is None else visit.now + longest]
    return min((end for end in ends if end is not None), default=None)


def token_asked(visit: Visit, latest: datetime | None) -> dict[str, Any]:
    """A body for POST /v1/tokens, of a token that lasts as long as it can unless the form says how long.

    Raises ProblemError (422) for an invalid number or time.
    """
    form = visit.form
    asked: dict[str, Any] = {}
    if (name := form.get("name")) is not None:
        asked["name"] = name
    if (lasts := form.duration("expires_in")) is not None:
        asked["expires_in"] = lasts
    elif latest is not None:
        asked["expires_in"] = max(1, int((latest - visit.now).total_seconds()) - _ON_ITS_WAY_S)
    if scopes := (form.get("scopes") or "").split():
        asked["scopes"] = scopes
    hours, until = form.decimal("gpu_hours", "The budget"), form.get("until")
    if hours is not None:
        asked["budget"] = {"gpu_hours": hours} | ({} if until is None else {"until": visit.instant(until)})
    elif until is not None:
        raise ProblemError(422, "invalid_request", "The budget has an end, but no GPU-hours. Say how many.")
    return asked
