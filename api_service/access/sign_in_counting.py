"""Count sign-in attempts: by REST, by the pages' form, and on the way back from an issuer."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from api_service.metrics.http_metrics import HttpMetrics, SignInOutcome, SignInWay
from api_service.problems import ProblemError
from reservation_core.domain.errors import ProofRefusedError, SignInRefusedError

_PROBLEMS: Mapping[str, SignInOutcome] = {
    "too_many_sign_ins": SignInOutcome.TOO_MANY,
    "too_many_wrong_tokens": SignInOutcome.TOO_MANY,
    "proof_unavailable": SignInOutcome.UNAVAILABLE,
    "sign_in_refused": SignInOutcome.REFUSED,
}
"""The outcome by the problem's code. With any other code the request was malformed."""


@dataclass(slots=True)
class SignInAttempt:
    """A sign-in attempt. `outcome` counts unless the block raises; None: the attempt goes on elsewhere."""

    way: SignInWay | None = None
    outcome: SignInOutcome | None = SignInOutcome.SIGNED_IN


@contextmanager
def counted_sign_in(metrics: HttpMetrics, way: SignInWay | None = None) -> Iterator[SignInAttempt]:
    """Count the block as one sign-in attempt."""
    attempt = SignInAttempt(way)
    outcome: SignInOutcome | None = SignInOutcome.FAILED
    try:
        yield attempt
        outcome = attempt.outcome
    except ProofRefusedError:
        outcome = SignInOutcome.REFUSED
        raise
    except SignInRefusedError:
        outcome = SignInOutcome.NOT_LET_IN
        raise
    except ProblemError as error:
        outcome = _PROBLEMS.get(error.code, SignInOutcome.MALFORMED)
        raise
    finally:
        if outcome is not None:
            metrics.count_sign_in(attempt.way, outcome)
