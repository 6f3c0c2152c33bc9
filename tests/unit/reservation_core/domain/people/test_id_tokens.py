"""Whatever claims a token has, nobody comes out of it who was not named for us, now, by the issuer."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.errors import ProofRefusedError
from reservation_core.domain.people.id_tokens import IssuerRules, identity_of

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
AT = int(NOW.timestamp())
ISSUER = IssuerRules("https://issuer.example", frozenset({"us"}))
LEEWAY, MAX_AGE = timedelta(minutes=1), timedelta(hours=1)
GOOD: dict[str, Any] = {
    "iss": ISSUER.url,
    "aud": "us",
    "sub": "1",
    "iat": AT,
    "exp": AT + 600,
    "email": "a@lab.example",
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["us", "1", AT]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from([*GOOD, "nbf", "azp", "email_verified", "groups"])


@given(st.dictionaries(NAMES, JSON, max_size=5), st.sets(NAMES, max_size=2))
def test_whatever_it_claims(changed: dict[str, Any], absent: set[str]) -> None:
    claims = {name: value for name, value in {**GOOD, **changed}.items() if name not in absent}
    try:
        found = identity_of(claims, ISSUER, NOW, LEEWAY, MAX_AGE)
    except ProofRefusedError:
        return
    assert claims["iss"] == ISSUER.url
    assert claims["aud"] == "us" or "us" in claims["aud"]
    assert AT - 3660 < claims["iat"] <= AT + 60
    assert claims["exp"] > AT - 60
    assert found.attributes["sub"] == (claims["sub"],)
    assert ("email" in found.attributes) <= (claims.get("email_verified") is True)
    assert "claim:email" not in found.attributes
    assert all(isinstance(value, str) for values in found.attributes.values() for value in values)


def test_the_good_one_is_good() -> None:
    found = identity_of({**GOOD, "email_verified": True, "groups": ["x", 1]}, ISSUER, NOW, LEEWAY, MAX_AGE)
    assert found.attributes["email"] == ("a@lab.example",)
    assert found.attributes["claim:groups"] == ("x",)


def test_who_may_pass_a_token_on() -> None:
    strict = IssuerRules(ISSUER.url, frozenset({"us"}), authorized_parties=frozenset({"our-client"}))
    for party, good in (("our-client", True), ("us", False), (None, False), (1, False)):
        claims = {**GOOD, "azp": party}
        try:
            identity_of(claims, strict, NOW, LEEWAY, MAX_AGE)
        except ProofRefusedError:
            assert not good
        else:
            assert good
