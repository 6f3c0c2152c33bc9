"""Verify service account tokens with the API server's TokenReview."""

import re
from collections.abc import Collection
from typing import Any

import structlog

from reservation_core.adapters.identity.turns import SignInTurns, TurnRules
from reservation_core.adapters.kubernetes.api_server.errors import ApiServerError
from reservation_core.adapters.kubernetes.api_server.plain_json import as_mapping
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.contracts.sign_in import KubernetesProof
from reservation_core.domain.errors import ProofRefusedError, SignInRefusedError
from reservation_core.domain.people.sign_in import ProvedIdentity
from reservation_core.domain.statuses import SignInMethod
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.people.proofs import CheckedProof, ProofUnavailableError

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCOUNT = re.compile(
    r"system:serviceaccount:(?P<namespace>[a-z0-9][-a-z0-9]{0,62}):(?P<name>[a-z0-9][-a-z0-9.]{0,252})"
)
_log = structlog.get_logger(__name__)


class TokenReviews:
    """Checks service accounts' tokens that are for one of `audiences`."""

    def __init__(self, transport: Transport, audiences: Collection[str], turns: TurnRules) -> None:
        self._transport = transport
        self._turns = SignInTurns(turns)
        self._audiences = sorted(audiences)

    async def check(self, proof: KubernetesProof) -> CheckedProof:
        """Verify a token. Raises ProofRefusedError, SignInRefusedError, ProofUnavailableError."""
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": proof.token, "audiences": self._audiences},
        }
        try:
            async with self._turns.turn("The Kubernetes API server"):
                answer = await self._transport.request("POST", _PATH, body=review)
        except ClusterUnavailableError as error:
            raise ProofUnavailableError("The Kubernetes API server can't be asked now.") from error
        except ApiServerError as error:
            _log.error("token_review_refused", status=error.status, reason=error.reason)
            raise ProofUnavailableError(
                "This server may not ask the Kubernetes API server about tokens; an administrator has to let it create"
                " tokenreviews.authentication.k8s.io."
            ) from error
        return CheckedProof(_identity(as_mapping(answer.get("status")), self._audiences))


def _identity(status: Any, audiences: list[str]) -> ProvedIdentity:
    confirmed = status.get("audiences")
    if status.get("authenticated") is not True:
        raise ProofRefusedError(
            "The Kubernetes API server does not know this token, it has expired, or it is not for this server. Use one"
            f" of a projected volume whose audience is {' or '.join(audiences)}."
        )
    if not isinstance(confirmed, list) or not set(audiences) & {
        audience for audience in confirmed if isinstance(audience, str)
    }:
        # A server that ignores audiences would confirm a token for any audience.
        raise ProofRefusedError(f"The token is not for this server: its audience must be {' or '.join(audiences)}.")
    username = as_mapping(status.get("user")).get("username")
    account = _ACCOUNT.fullmatch(username) if isinstance(username, str) else None
    if account is None:
        raise SignInRefusedError("The token is not a service account's. Use one of a pod's service account.")
    attributes = {"namespace": (account["namespace"],), "service_account": (account["name"],)}
    return ProvedIdentity(SignInMethod.KUBERNETES, account[0], attributes)
