"""Sign-in at an OpenID Connect issuer's page, from which the browser returns with a code."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """Where the browser is sent, and the values to check when it returns."""

    url: str
    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


class CodeFlow(Protocol):
    """The authorization code flow with PKCE (RFC 6749, 7636; OpenID Connect Core 3.1)."""

    async def begin(self, *, other_account: bool = False) -> PendingSignIn:
        """The way there; `other_account`: the issuer asks which account to use. Raises ProofUnavailableError."""

    async def finish(self, code: str, begun: PendingSignIn) -> str:
        """The ID token for a code, with the expected nonce; its claims are not checked yet.

        Raises ProofRefusedError, ProofUnavailableError.
        """
