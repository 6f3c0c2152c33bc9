"""Counting tries to sign in, wherever they are made: by REST, at the pages' form, or on the way back from an issuer."""

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
"""What became of it, by the problem's code; of any other, what came was not well-formed."""


@dataclass(slots=True)
class Tried:
    """A sign-in attempt so far. `outcome` is what becomes of it unless it raises; None: it goes on
    elsewhere.
    """

    way: SignInWay | None = None
    outcome: SignInOutcome | None = SignInOutcome.SIGNED_IN


@contextmanager
def counted_sign_in(metrics: HttpMetrics, way: SignInWay | None = None) -> Iterator[Tried]:
    """Count the try that the block is."""
    tried = Tried(way)
    outcome: SignInOutcome | None = SignInOutcome.FAILED
    try:
        yield tried
        outcome = tried.outcome
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
            metrics.count_sign_in(tried.way, outcome)
