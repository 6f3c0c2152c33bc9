"""The checks of an ID token's claims after that of its signature (OpenID Connect Core, 3.1.3.7)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeGuard

from reservation_core.domain.errors import ProofRefusedError
from reservation_core.domain.people.sign_in import ProvedIdentity
from reservation_core.domain.statuses import SignInMethod

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Signatures by key pairs; never `none`, never a shared secret."""
_LONGEST = 1024
_MOST_VALUES = 200


@dataclass(frozen=True, slots=True)
class IssuerRules:
    """A trusted issuer: the audiences, algorithms and authorized parties (azp) of its tokens.

    `jwks_url` is where its keys are; None: as its discovery document says.
    """

    url: str
    audiences: frozenset[str]
    algorithms: frozenset[str] = frozenset({"RS256", "ES256"})
    authorized_parties: frozenset[str] = frozenset()
    jwks_url: str | None = None


def identity_of(
    claims: Mapping[str, Any], issuer: IssuerRules, now: datetime, leeway: timedelta, max_age: timedelta
) -> ProvedIdentity:
    """Read an identity from the claims: `sub`, `email` if the issuer has verified it, and `claim:NAME` for plain ones.

    `max_age` bounds a token's age, regardless of its expiry. Raises ProofRefusedError.
    """
    if claims.get("iss") != issuer.url:
        raise _refused("It is another issuer's.")
    _check_audience(claims, issuer)
    _check_times(claims, now, leeway, max_age)
    subject = claims.get("sub")
    if not _is_word(subject):
        raise _refused("It names no subject (sub).")
    email = claims.get("email")
    attributes: dict[str, tuple[str, ...]] = {"issuer": (issuer.url,), "sub": (subject,)}
    name = subject
    if _is_word(email) and claims.get("email_verified") is True:
        attributes["email"] = (email,)
        name = email
    for claim, value in claims.items():
        if claim == "email":  # rules see it as `email`, if it is verified
            continue
        values = value if isinstance(value, list) else [value]
        attributes[f"claim:{claim}"] = tuple(word for word in values[:_MOST_VALUES] if _is_word(word))
    return ProvedIdentity(SignInMethod.OIDC, f"{name} of {issuer.url}", attributes)


def _check_audience(claims: Mapping[str, Any], issuer: IssuerRules) -> None:
    given = claims.get("aud")
    audiences = [given] if isinstance(given, str) else given
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise _refused("It has no audience (aud).")
    if not issuer.audiences & set(audiences):
        ours = " or ".join(sorted(issuer.audiences))
        raise _refused(f"It is for another audience. Ask {issuer.url} for one whose audience is {ours}.")
    party = claims.get("azp")
    if party is None and len(set(audiences)) == 1 and not issuer.authorized_parties:
        return
    allowed = issuer.authorized_parties or (issuer.audiences if len(set(audiences)) > 1 else None)
    if allowed is not None and party not in allowed:
        raise _refused("It was given to a client (azp) that is not among those that may pass it on.")


def _check_times(claims: Mapping[str, Any], now: datetime, leeway: timedelta, max_age: timedelta) -> None:
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if expires is None or issued is None:
        raise _refused("It does not say when it was issued and when it expires (iat, exp).")
    if now >= expires + leeway or now >= issued + max_age + leeway:
        raise _refused("It has expired. Get a new one and sign in again.")
    begins = _time(claims, "nbf")
    if now < issued - leeway or (begins is not None and now < begins - leeway):
        raise _refused("It is not valid yet. Check the clocks.")


def _time(claims: Mapping[str, Any], name: str) -> datetime | None:
    given = claims.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1e11:
        raise _refused(f"Its {name} is no time.")
    return datetime.fromtimestamp(given, UTC)


def _is_word(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable()


def _refused(why: str) -> ProofRefusedError:
    return ProofRefusedError(f"The ID token is not accepted. {why}")
