"""Proofs of people who sign in: checked elsewhere, and used once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reservation_core.contracts.sign_in import AnyProof
from reservation_core.domain.people.sign_in import ProvedIdentity


class ProofUnavailableError(Exception):
    """The service that checks a proof can't be asked now. The text holds nothing of the proof."""


@dataclass(frozen=True, slots=True)
class CheckedProof:
    """The person whom a proof shows.

    A proof that may be used once only has `once`, its digest, which is kept until `forget_after`.
    """

    identity: ProvedIdentity
    once: bytes | None = None
    forget_after: datetime | None = None


class ProofChecker(Protocol):
    """Asks who can know."""

    async def check(self, proof: AnyProof) -> CheckedProof:
        """Raises ProofRefusedError, ProofUnavailableError, and NotLetInError where such proofs are not taken."""
        ...
