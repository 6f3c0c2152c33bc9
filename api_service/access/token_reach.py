"""The scopes that a request needs: decided by method and path, so that no route can forget it."""

import re

from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.people.token_scopes import EVERYTHING, PERSONAL, in_order
from reservation_core.domain.statuses import TokenScope
from reservation_core.ports.people.identities import Principal

_NOTHING: frozenset[TokenScope] = frozenset()
_READS = frozenset({TokenScope.READ})
_ENTERING = frozenset({TokenScope.SESSIONS})
_ADMINISTERS = frozenset({TokenScope.ADMIN})
_ANSWERS_ONLY = frozenset({"/v1/policy/explain", "/v1/simulations"})
"""Paths whose POST changes nothing."""
_BY_SUBJECT = {
    "jobs": frozenset({TokenScope.SUBMIT}),
    "uploads": frozenset({TokenScope.SUBMIT}),
    "disks": frozenset({TokenScope.SUBMIT}),
    "bookings": frozenset({TokenScope.BOOK}),
    # A key or secret of a person outlives the token that it was added with.
    "keys": PERSONAL,
    "secrets": PERSONAL,
    "notifications": PERSONAL,
    "tokens": PERSONAL,
    "schedulability": _NOTHING,  # for services, by their role
}
_BY_ADDRESS = {
    # A token never exceeds the token that makes it, so every token may make tokens.
    ("POST", "/v1/tokens"): _NOTHING,
    # The calendar's address is a credential, too, and has no scopes of its own.
    ("POST", "/v1/bookings/feed"): PERSONAL,
    ("DELETE", "/v1/bookings/feed"): PERSONAL,
}


_ENTERS = re.compile(r"/v1/(jobs/[^/]+/(exec|forward/[^/]+|terminals|app-tickets|shares/[^/]+)|ssh|ssh-certificates)")
"""WebSockets into jobs, what is open there, and what lets people in."""


def needed_scopes(method: str, path: str) -> frozenset[TokenScope]:
    """All scopes that a request under /v1 needs. Changes of a subject that is not listed are for administrators."""
    path = path.removesuffix("\n")  # routes ignore it, too
    if _ENTERS.fullmatch(path):
        return _ENTERING
    if method in ("GET", "HEAD") or path in _ANSWERS_ONLY:
        return _READS
    by_address = _BY_ADDRESS.get((method, path))
    if by_address is not None:
        return by_address
    return _BY_SUBJECT.get(path.removeprefix("/v1/").partition("/")[0], _ADMINISTERS)


def require(principal: Principal, method: str, path: str) -> None:
    """Raises ForbiddenError where the caller's token is not good for a request. Every token may revoke itself."""
    if principal.scopes == EVERYTHING or (method, path) == ("DELETE", f"/v1/tokens/{principal.token_id}"):
        return
    require_scopes(principal, needed_scopes(method, path))


def require_scopes(principal: Principal, scopes: frozenset[TokenScope]) -> None:
    """Raises ForbiddenError where the caller's token lacks one of the scopes."""
    missing = scopes - principal.scopes
    if missing:
        raise ForbiddenError(
            f"Your token does not have the scope {', '.join(in_order(missing))}, which this request needs. It has: "
            f"{', '.join(in_order(principal.scopes))}. Use another token."
        )
