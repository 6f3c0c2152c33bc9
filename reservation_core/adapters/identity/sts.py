"""AWS's word for who somebody is: the request that they signed is sent to STS, which names them in its answer."""

import hashlib
import json
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
"""So much longer than it could be used a proof is remembered: servers' clocks differ."""
_BUSY = frozenset(
    {"Throttling", "ThrottlingException", "RequestLimitExceeded", "ServiceUnavailable", "InternalFailure"}
)
"""Of these codes the signature is not to blame, whatever the status: some come with 400."""
_log = structlog.get_logger(__name__)


class StsProofs:
    """Checks signed requests."""

    def __init__(self, rules: AwsRules, outside: Outside, clock: Clock) -> None:
        self._rules = rules
        self._outside = outside
        self._clock = clock

    async def check(self, proof: AwsProof) -> CheckedProof:
        """Ask STS. Raises ProofRefusedError, NotLetInError, ProofUnavailableError."""
        call = sts_call(proof.http_method, proof.url, proof.headers, self._rules, self._clock.now())
        # JSON: nothing of the answer is worth a parser of XML.
        headers = [*call.headers, ("accept", "application/json"), ("user-agent", "gpu-dev-server")]
        answer = await self._outside.ask(call.method, call.host, call.target, headers, call.body)
        account, arn = _caller(answer, call)
        return CheckedProof(
            aws_identity(account, arn),
            once=hashlib.sha256(b"aws\0" + call.signature.encode()).digest(),
            forget_after=call.signed_at + self._rules.max_age + EARLY + _MARGIN,
        )


def _caller(answer: OutsideAnswer, call: StsCall) -> tuple[str, str]:
    """The account and ARN."""
    if answer.status == 429 or answer.status >= 500 or 300 <= answer.status < 400:
        raise ProofUnavailableError(f"{call.host} answered with status {answer.status}.")
    said = _json(answer.body)
    if answer.status != 200:
        code = said.get("Error", {}).get("Code") if isinstance(said.get("Error"), dict) else None
        if str(code) in _BUSY:
            raise ProofUnavailableError(f"{call.host} is busy ({code}).")
        _log.info("aws_refused_a_proof", host=call.host, status=answer.status, code=str(code)[:64])
        raise ProofRefusedError(
            f"AWS does not accept the signature (status {answer.status}). Are the credentials that it was made with"
            " still good, and are they for this region? Sign a new one."
        )
    found: Any = said
    for name in ("GetCallerIdentityResponse", "GetCallerIdentityResult"):
        found = found.get(name) if isinstance(found, dict) else None
    account = found.get("Account") if isinstance(found, dict) else None
    arn = found.get("Arn") if isinstance(found, dict) else None
    if not isinstance(account, str) or not isinstance(arn, str):
        raise ProofUnavailableError(f"{call.host} answered with something that is no answer of STS.")
    return account, arn


def _json(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
