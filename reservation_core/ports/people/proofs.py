"""Proofs of identity of people who sign in."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.contracts.sign_in import AnyProof
from reservation_core.domain.people.sign_in import ProvedIdentity


class ProofUnavailableError(Exception):
    """A proof can't be checked now. The text contains nothing of the proof."""


@dataclass(frozen=True, slots=True)
class CheckedProof:
    """The identity that a proof shows.

    For a proof that may be used only once, `once` is its digest, which is kept until `forget_after`.
    """

    identity: ProvedIdentity
    once: bytes | None = None
    forget_after: datetime | None = None


class ProofChecker(Protocol):
    """Checks proofs, by asking their issuer if necessary."""

    async def check(self, proof: AnyProof) -> CheckedProof:
        """Raises ProofRefusedError, ProofUnavailableError, and SignInRefusedError where proofs are not accepted."""
