"""Tokens of all users: create, show once, revoke."""

from urllib.parse import quote

from starlette.responses import Response

from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.token_form import SCOPES, latest_end, scope_words, token_asked
from api_service.web.token_revocation import ask_to_revoke
from api_service.web.visit import Visit
from reservation_core.contracts.base import Page
from reservation_core.contracts.people import TokenCreated, TokenOut


async def tokens_page(visit: Visit) -> Response:
    """Show tokens by id, of one user or of all."""
    return await _page(visit, visit.query("user"))


async def make(visit: Visit) -> Response:
    """Create a token. This page alone shows its secret: the browser would keep an address."""
    user = visit.form.get("user") or ""
    try:
        asked = token_asked(visit, await latest_end(visit))
        made = await visit.rest.post(TokenCreated, "/v1/tokens", {"user": user, **asked})
    except RestProblemError as problem:
        return await _page(visit, user, problem=problem)
    return await _page(visit, user, made=made)


async def confirm_revoke(visit: Visit) -> Response:
    """Explain what revoking a token would end."""
    user = visit.query("user")
    tokens = await visit.rest.all(Page[TokenOut], "/v1/tokens", {"user": visit.query("of") or user or None})
    back = "/admin/tokens" + (f"?user={quote(user, safe='')}" if user else "")
    return ask_to_revoke(visit, tokens, back=back, fields={"user": user})


async def revoke(visit: Visit) -> Response:
    """Revoke a token, with the sessions that began with it."""
    token = visit.path("token")
    await visit.rest.send("DELETE", f"/v1/tokens/{token}")
    user = visit.form.get("user")
    return visit.go("/admin/tokens" + (f"?user={quote(user, safe='')}" if user else ""), f"{token} is revoked.")


async def _page(
    visit: Visit, user: str, *, made: TokenCreated | None = None, problem: RestProblemError | None = None
) -> Response:
    asked = {"limit": 100, "cursor": visit.query("cursor") or None, "user": user or None}
    found = Page[TokenOut](items=[], next_cursor=None)
    if problem is None:
        found = await visit.rest.get(Page[TokenOut], "/v1/tokens", asked)
    return visit.page(
        "admin/tokens.html",
        title="Tokens",
        status=200 if problem is None else problem.status,
        tokens=found.items,
        scopes=SCOPES,
        scope_words=scope_words,
        latest_end=await latest_end(visit),
        by_token=visit.principal.session_from is not None,
        cursor=asked["cursor"],
        next_cursor=found.next_cursor,
        user=user,
        made=made,
        problem=problem,
    )


ROUTES = (
    WebRoute("GET", "/admin/tokens", tokens_page, PageAccess.ADMIN),
    WebRoute("POST", "/admin/tokens", make, PageAccess.ADMIN),
    WebRoute("GET", "/admin/tokens/{token}/revoke", confirm_revoke, PageAccess.ADMIN),
    WebRoute("POST", "/admin/tokens/{token}/revoke", revoke, PageAccess.ADMIN),
)
