"""Signing in with a token, signing out, and the time zone."""

from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from api_service.access.access_log import name_user
from api_service.access.sign_in_counting import counted_sign_in
from api_service.metrics.http_metrics import SignInOutcome
from api_service.problems import ProblemError, of_exception
from api_service.web.rendering import json_data
from api_service.web.rest_calls import RestProblemError
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.sessions import csrf
from api_service.web.sessions.cookies import browser_zone, drop_zone, keep_zone
from api_service.web.sessions.return_address import safe_return
from api_service.web.visit import Visit
from reservation_core.domain.errors import ForbiddenError, LimitExceededError, SignInRefusedError
from reservation_core.domain.wall_times import WallTimeError, zone_of
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.people import tokens
from reservation_core.usecases.people.web_sessions import WebSession, open_session
from reservation_core.usecases.repeat_lost_transactions import repeat_lost


async def sign_in_page(visit: Visit) -> Response:
    return _form(visit, visit.query("next"))


async def sign_in(visit: Visit) -> Response:
    """Begin a session with a token."""
    wanted = safe_return(visit.form.get("next"))
    with counted_sign_in(visit.services.metrics.http, "token") as attempt:
        try:
            session = await _begin_session(visit, visit.form.get("token"))
        except _NotSignedInError as refused:
            attempt.outcome = refused.outcome
            return _form(visit, wanted, str(refused))
    name_user(visit.request.scope, session.token.user, session.token.id)
    response = visit.go(wanted)
    visit.cookies.keep_session(response, session.secret, session.expires_at)
    return response


class _NotSignedInError(Exception):
    """Why a token begins no session; the text is for the user."""

    def __init__(self, outcome: SignInOutcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome


async def _begin_session(visit: Visit, secret: str | None) -> WebSession:
    """A session of the token's user, in place of this browser's former one. Raises _NotSignedInError."""
    if secret is None:
        detail = "Paste a token. An administrator gives you one."
        raise _NotSignedInError(SignInOutcome.MALFORMED, detail)
    services = visit.services
    try:
        shown = await services.token_pace.principal(visit.request.scope, f"Bearer {secret}")
    except ProblemError as error:
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise
        detail = "This token is not valid: it is misspelt, expired or revoked. Ask for a new one."
        raise _NotSignedInError(SignInOutcome.REFUSED, detail) from error
    former = await _former_session(visit)

    async def begin() -> WebSession:
        async with services.runtime.uow() as uow:
            if former is not None:
                await tokens.revoke(uow, former, former.token_id, services.runtime.clock.now())
            return await open_session(
                uow,
                shown,
                lasts=services.settings.web.session_lasts,
                ids=services.runtime.ids,
                now=services.runtime.clock.now(),
            )

    try:
        session = await repeat_lost(begin)
    except (ForbiddenError, LimitExceededError) as error:
        raise _NotSignedInError(SignInOutcome.NOT_LET_IN, error.detail) from error
    if former is not None:
        services.authenticator.forget_revoked(former, former.user)
    return session


async def _former_session(visit: Visit) -> Principal | None:
    """The session that this browser has already."""
    secret = visit.cookies.session(visit.request)
    if secret is None:
        return None
    try:
        return await visit.services.authenticator.principal(f"Bearer {secret}", session=True)
    except ProblemError:
        return None


async def session(visit: Visit) -> Response:
    """The signed-in user, and a token for the forms of a page that is older than the session."""
    return json_data(visit.request, {"user": visit.principal.user, "csrf": csrf.made_for(visit.signed_in.secret)})


async def signed_in(visit: Visit) -> Response:
    """The end of a sign-in that a page of another tab waits for."""
    return visit.page("signed_in.html", title="Signed in")


async def sign_out(visit: Visit) -> Response:
    """End the session in the browser and in the database."""
    services, principal = visit.services, visit.principal
    async with services.runtime.uow() as uow:
        await tokens.revoke(uow, principal, principal.token_id, services.runtime.clock.now())
    services.authenticator.forget_revoked(principal, principal.user)
    there = " You may still be signed in at your organisation." if principal.session_from is None else ""
    response = visit.go("/sign-in", f"You are signed out.{there}")
    visit.cookies.drop_session(response)
    return response


async def choose_zone(visit: Visit) -> Response:
    """Store the time zone in which times are shown; an empty name is the browser's, or UTC without scripts."""
    name = visit.form.get("zone")
    back = safe_return(visit.form.get("next"))
    if name is None:
        known = browser_zone(visit.request.cookies) is not None
        utc = "Times are shown in UTC: without JavaScript, your browser's time zone is not known."
        response = visit.go(back, "Times are shown for your browser's time zone." if known else utc)
        drop_zone(response, secure=visit.cookies.secure)
        return response
    try:
        zone_of(name)
    except WallTimeError as error:
        raise ProblemError(
            422, "unknown_time_zone", "There is no such time zone. Choose one such as Europe/Berlin."
        ) from error
    response = visit.go(back, f"Times are shown for {name}.")
    keep_zone(response, name, secure=visit.cookies.secure)
    return response


def refused_elsewhere(visit: Visit, error: Exception, wanted: str) -> Response:
    """The sign-in page with the reason why the organisation's account signed nobody in. Raises unexpected errors."""
    answer = of_exception(error, visit.request)
    if answer is None:
        raise error
    problem = RestProblemError.of(answer)
    other_account = isinstance(error, SignInRefusedError)  # the browser may sign in with another one
    response = _form(visit, wanted, problem.detail, problem.status, by_organisation=True, other_account=other_account)
    if (retry_after := problem.headers.get("retry-after")) is not None:
        response.headers["retry-after"] = retry_after
    return response


def _form(
    visit: Visit,
    wanted: str,
    trouble: str | None = None,
    status: int = 401,
    *,
    by_organisation: bool = False,
    other_account: bool = False,
) -> Response:
    status = 200 if trouble is None else status
    context: dict[str, Any] = {
        "wanted": safe_return(wanted),
        "trouble": trouble,
        "by_organisation": by_organisation,
        "other_account": other_account,
        "issuer": visit.services.settings.web.oidc_issuer,
        "elsewhere": visit.services.settings.web.public_url if visit.cookies.would_be_dropped(visit.request) else None,
    }
    if visit.partial:
        return visit.part("_sign_in.html", status, **context)
    return visit.page("sign_in.html", title="Sign in", status=status, **context)


ROUTES = (
    WebRoute("GET", "/sign-in", sign_in_page, PageAccess.ANYBODY),
    WebRoute("POST", "/sign-in", sign_in, PageAccess.ANYBODY),
    WebRoute("GET", "/session", session),
    WebRoute("GET", "/signed-in", signed_in),
    # Another tab may have signed in since the page was made, and signing out must work. Other sites can't send it: the
    # cookie stays away (SameSite), and the browser says where it comes from.
    WebRoute("POST", "/sign-out", sign_out, needs_fresh_page=False),
    WebRoute("POST", "/zone", choose_zone),
)
