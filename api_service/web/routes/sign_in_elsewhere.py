"""Signing in at the organisation's identity provider, with the authorization code flow.

The browser keeps the state of the flow in a cookie of a few minutes that scripts can't read: nothing is stored here,
and any replica can go on.
"""

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from api_service.access.access_log import name_user
from api_service.access.sign_in_counting import counted_sign_in
from api_service.problems import ProblemError, of_validation
from api_service.web.routes.sign_in import refused_elsewhere
from api_service.web.routing import PageAccess, WebRoute
from api_service.web.sessions.return_address import safe_return
from api_service.web.visit import Visit
from reservation_core.contracts.sign_in import OidcProof
from reservation_core.domain.statuses import SignInMethod
from reservation_core.ports.people.code_flow import CodeFlow, PendingSignIn
from reservation_core.ports.people.proofs import ProofUnavailableError
from reservation_core.usecases.people.sign_in import SignedInUser
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

_KEPT_S = 600
_ANEW = "Sign in again."


async def start(visit: Visit) -> Response:
    """Redirect the browser to the identity provider."""
    try:
        return await _led_there(visit)
    except Exception as error:  # noqa: BLE001 - what nobody foresaw travels on
        return refused_elsewhere(visit, error, visit.query("next"))


async def _led_there(visit: Visit) -> Response:
    flow = _flow(visit)
    with counted_sign_in(visit.services.metrics.http, SignInMethod.OIDC) as attempt:
        visit.services.sign_in_pace.admit(visit.request.scope)
        try:
            begun = await flow.begin(other_account=visit.query("account") == "other")
        except ProofUnavailableError as error:
            raise _unavailable(error) from error
        attempt.outcome = None  # counted when the browser is back
    response = RedirectResponse(begun.url, 303, headers={"Cache-Control": "no-store"})
    kept = [begun.state, begun.nonce, begun.verifier, safe_return(visit.query("next"))]
    visit.cookies.keep_sign_in(response, urlsafe_b64encode(json.dumps(kept).encode()).decode(), _KEPT_S)
    return response


async def done(visit: Visit) -> Response:
    """Exchange the returned code for an ID token, and begin a session."""
    wanted = ""
    try:
        flow = _flow(visit)
        with counted_sign_in(visit.services.metrics.http, SignInMethod.OIDC):
            begun, wanted = _read_state(visit.cookies.sign_in(visit.request))
            signed_in = await _signed_in(visit, flow, begun)
    except Exception as error:  # noqa: BLE001 - what nobody foresaw travels on
        return refused_elsewhere(visit, error, wanted)
    name_user(visit.request.scope, signed_in.user.name, signed_in.token.id)
    response = visit.go(wanted)
    visit.cookies.drop_sign_in(response)
    visit.cookies.keep_session(response, signed_in.secret, signed_in.expires_at)
    return response


async def _signed_in(visit: Visit, flow: CodeFlow, begun: PendingSignIn) -> SignedInUser:
    """Return the user whom the issuer has let in."""
    if not hmac.compare_digest(visit.query("state").encode(), begun.state.encode()):
        raise ProblemError(403, "other_sign_in", f"This answer belongs to a sign-in of another browser. {_ANEW}")
    if visit.query("error"):
        raise ProblemError(403, "sign_in_refused", f"Your organisation did not confirm the sign-in. {_ANEW}")
    desk, pace = visit.services.signing_in.desk, visit.services.sign_in_pace
    # Anybody can make us ask the issuer from here on: state and cookie only confirm each other.
    pace.admit(visit.request.scope)
    pace.admit_issuer()
    try:
        token = await flow.finish(visit.query("code"), begun)
        proof = OidcProof(method=SignInMethod.OIDC, id_token=token)
        return await repeat_lost(lambda: desk.sign_in(proof, session=True))
    except ProofUnavailableError as error:
        raise _unavailable(error) from error
    except ValidationError as error:
        raise of_validation(error) from None


def _flow(visit: Visit) -> CodeFlow:
    flow = visit.services.signing_in.code_flow
    if flow is None:
        raise ProblemError(404, "not_set_up", "This server has no sign-in page of an organisation. Use a token.")
    return flow


def _read_state(cookie: str | None) -> tuple[PendingSignIn, str]:
    """The state that the browser kept, and the page it wanted."""
    try:
        *said, wanted = json.loads(urlsafe_b64decode((cookie or "").encode()))
        # A forged cookie may hold no text, or text that can not be compared.
        state, nonce, verifier = (str.encode(name, "ascii").decode() for name in said)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProblemError(403, "no_sign_in", f"This browser started no sign-in, or too long ago. {_ANEW}") from error
    return PendingSignIn("", state, nonce, verifier), safe_return(str(wanted))


def _unavailable(error: ProofUnavailableError) -> ProblemError:
    detail = f"Your organisation does not answer. {error} Try again."
    return ProblemError(503, "proof_unavailable", detail, headers={"Retry-After": "5"})


ROUTES = (
    WebRoute("GET", "/sign-in/start", start, PageAccess.ANYBODY),
    WebRoute("GET", "/sign-in/done", done, PageAccess.ANYBODY),
)
