"""Sign in: exchange a proof of identity for a token of limited life."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from api_service.access.access_log import name_user
from api_service.access.sign_in_counting import counted_sign_in
from api_service.documents import answers, problems, takes
from api_service.problems import ProblemError
from api_service.requests import bodies
from api_service.services import Served
from reservation_core.contracts.sign_in import SignedIn, SignIn
from reservation_core.ports.people.proofs import ProofUnavailableError
from reservation_core.usecases.repeat_lost_transactions import repeat_lost

router = APIRouter(prefix="/v1/login", tags=["tokens"])
_LARGEST = 32 * 1024


@router.post(
    "",
    status_code=201,
    response_model=SignedIn,
    summary="Sign in",
    responses=answers(201, "A token of limited life. Its secret is in this answer and nowhere else.")
    | problems(400, 403, 413, 415, 429),
    openapi_extra=takes(SignIn),
)
async def sign_in(request: Request, services: Served) -> Response:
    """Prove your identity by a signed AWS request, an ID token, or a service account's token. No API token is needed.

    403 says what to ask an administrator for. A signed AWS request is good once: sign a new one for each attempt.
    """
    with counted_sign_in(services.metrics.http) as attempt:
        services.sign_in_pace.admit(request.scope)
        proof = (await bodies.read(request, SignIn, limit=_LARGEST)).root
        attempt.way = proof.method
        services.sign_in_pace.admit_proof(proof)
        try:
            done = await repeat_lost(lambda: services.signing_in.desk.sign_in(proof))
        except ProofUnavailableError as error:
            detail = f"Your identity can't be checked at this moment. {error} Try again."
            raise ProblemError(503, "proof_unavailable", detail, headers={"Retry-After": "5"}) from error
    name_user(request.scope, done.user.name, done.token.id)
    answer = SignedIn(
        user=done.user.name,
        role=done.user.role,
        token_id=done.token.id,
        token=done.secret,
        expires_at=done.expires_at,
    )
    headers = {"Cache-Control": "no-store"}
    return Response(answer.model_dump_json(), status_code=201, media_type="application/json", headers=headers)
