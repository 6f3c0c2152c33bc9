"""The question before a token is revoked."""

from collections.abc import Sequence

from starlette.responses import Response

from api_service.web.confirmation import ask
from api_service.web.rest_calls import RestProblemError
from api_service.web.visit import Visit
from reservation_core.contracts.people import TokenOut
from reservation_core.domain.time_words import rfc3339


def ask_to_revoke(visit: Visit, tokens: Sequence[TokenOut], *, back: str, fields: dict[str, str]) -> Response:
    """Ask before the token of the address is revoked; `tokens`: those of its user."""
    token = next((token for token in tokens if token.id == visit.path("token")), None)
    if token is None or token.revoked_at is not None:
        raise RestProblemError.because(404, "No token in use has this id. `gpu-dev tokens list` shows yours.")
    name = token.id if token.name is None else f"{token.name} ({token.id})"
    used = "It was never used." if token.last_used_at is None else f"It was last used at {rfc3339(token.last_used_at)}."
    if token.session:
        return ask(
            visit,
            "Sign out this browser?",
            (f"The browser that signed in at {rfc3339(token.created_at)} is signed out at once. {used}",),
            words="Sign it out",
            back=back,
            fields=fields,
        )
    sentences = ["Programs that use it stop working at once, and browsers that signed in with it are signed out.", used]
    if lost := _made_with(token, tokens):
        sentences.append(f"Tokens that were made with it are revoked, too: {', '.join(lost)}.")
    if token.id == visit.principal.session_from:
        sentences.append("You signed in with it: this browser is signed out, too.")
    whose = "" if token.user == visit.principal.user else f" of {token.user}"
    return ask(visit, f"Revoke {name}{whose}?", sentences, words="Revoke it", back=back, fields=fields)


def _made_with(token: TokenOut, tokens: Sequence[TokenOut]) -> list[str]:
    """The valid tokens that were made with this one, or with one of these, as `name (id)`."""
    children = [child for child in tokens if child.made_with == token.id and child.revoked_at is None]
    named = [f"{child.name} ({child.id})" if child.name else child.id for child in children]
    return named + [name for child in children for name in _made_with(child, tokens)]
