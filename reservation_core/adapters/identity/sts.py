"""AWS identities: the user's signed request is sent to STS, whose answer names the caller."""

import hashlib
from datetime import timedelta
from typing import Any

import structlog

from reservation_core.adapters.identity.outside import Outside, OutsideAnswer
from reservation_core.contracts.sign_in import AwsProof
from reservation_core.domain.errors import ProofRefusedError
from reservation_core.domain.people.aws_identities import aws_identity
from reservation_core.domain.people.aws_signed_requests import EARLY, AwsRules, StsCall, sts_call
from reservation_core.ports.clock import Clock
from reservation_core.ports.people.proofs import CheckedProof, ProofUnavailableError

_MARGIN = timedelta(minutes=5)
"""Used proofs are remembered so much longer than they are valid, as servers' clocks differ."""
_BUSY = frozenset(
    {"Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable", "InternalFailure"}
)
"""Error codes that do not concern the signature, whatever the status: some come with 400."""
_log = structlog.get_logger(__name__)


class StsProofs:
    """Checks signed requests with STS."""

    def __init__(self, rules: AwsRules, outside: Outside, clock: Clock) -> None:
        self._rules = rules
        self._outside = outside
        self._clock = clock

    async def check(self, proof: AwsProof) -> CheckedProof:
        """Raises ProofRefusedError, SignInRefusedError, ProofUnavailableError."""
        call = sts_call(proof.http_method, proof.url, proof.headers, self._rules, self._clock.now())
        # JSON, so that no XML parser is needed.
        headers = [*call.headers, ("accept", "application/json"), ("user-agent", "gpu-dev-server")]
        answer = await self._outside.ask(call.method, call.host, call.target, headers, call.body)
        account, arn = _caller(answer, call)
        return CheckedProof(
            aws_identity(account, arn),
            once=hashlib.sha256(b"aws\0" + call.signature.encode()).digest(),
            forget_after=call.signed_at + self._rules.max_age + EARLY + _MARGIN,
        )


def _caller(answer: OutsideAnswer, call: StsCall) -> tuple[str, str]:
    """The account and ARN in the answer of STS."""
    if answer.status == 429 or answer.status >= 500 or 300 <= answer.status < 400:
        raise ProofUnavailableError(f"{call.host} answered with status {answer.status}.")
    content = answer.json_object()
    if answer.status != 200:
        code = content.get("Error", {}).get("Code") if isinstance(content.get("Error"), dict) else None
        if str(code) in _BUSY:
            raise ProofUnavailableError(f"{call.host} is busy ({code}).")
        _log.info("aws_refused_a_proof", host=call.host, status=answer.status, code=str(code)[:64])
        raise ProofRefusedError(
            f"AWS does not accept the signature (status {answer.status}). Are the credentials that it was made with"
            " still good, and are they for this region? Sign a new one."
        )
    result: Any = content
    for name in ("GetCallerIdentityResponse", "GetCallerIdentityResult"):
        result = result.get(name) if isinstance(result, dict) else None
    account, arn = (result.get("Account"), result.get("Arn")) if isinstance(result, dict) else (None, None)
    if not isinstance(account, str) or not isinstance(arn, str):
        raise ProofUnavailableError(f"{call.host} answered with something that is no answer of STS.")
    return account, arn
