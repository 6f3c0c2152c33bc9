"""Check ID tokens of configured issuers: signatures with their keys, claims by the domain's rules."""

import binascii
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import jwt

from reservation_core.adapters.identity.key_sets import KeySet, KeySetRules
from reservation_core.adapters.identity.outside import Outside
from reservation_core.contracts.sign_in import OidcProof
from reservation_core.domain.errors import ProofRefusedError
from reservation_core.domain.people.id_tokens import IssuerRules, identity_of
from reservation_core.ports.clock import Clock
from reservation_core.ports.people.proofs import CheckedProof

_LEEWAY = timedelta(minutes=1)
_LONGEST_KID = 256


class OidcProofs:
    """Checks ID tokens, up to `max_age` after their issue."""

    def __init__(
        self, issuers: Sequence[IssuerRules], outside: Outside, clock: Clock, keys: KeySetRules, max_age: timedelta
    ) -> None:
        self._issuers = {issuer.url: (issuer, KeySet(issuer, outside, keys)) for issuer in issuers}
        self._clock = clock
        self._max_age = max_age

    async def check(self, proof: OidcProof) -> CheckedProof:
        """Raises ProofRefusedError, ProofUnavailableError."""
        header, claims = _parts(proof.id_token)
        named = claims.get("iss")
        issuer, keys = self._issuers.get(named if isinstance(named, str) else "", (None, None))
        if issuer is None or keys is None:
            known = ", ".join(sorted(self._issuers))
            raise _refused(f"Its issuer is not one of {known}.")
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
            raise _refused(f"It must be signed with {' or '.join(sorted(issuer.algorithms))}.")
        if "crit" in header or not (kid is None or (isinstance(kid, str) and len(kid) <= _LONGEST_KID)):
            raise _refused("Its header has fields that this server does not know.")
        key = await keys.key(kid, algorithm)
        if key is None:
            raise _refused("It is signed with a key that its issuer does not publish.")
        # The library checks the signature alone; claims are checked with our clock and our rules.
        try:
            proved = jwt.decode(proof.id_token, key, algorithms=[algorithm], options=_SIGNATURE_ALONE)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise _refused("Its signature does not match its issuer's key.") from error
        return CheckedProof(identity_of(proved, issuer, self._clock.now(), _LEEWAY, self._max_age))


_SIGNATURE_ALONE: Any = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims, unverified."""
    try:
        header, claims = (json.loads(jwt.utils.base64url_decode(part)) for part in token.split(".")[:2])
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _refused("It is not an ID token.") from error
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise _refused("It is not an ID token.")
    return header, claims


def _refused(why: str) -> ProofRefusedError:
    return ProofRefusedError(f"The ID token is not accepted. {why}")
