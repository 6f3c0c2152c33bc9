"""Sign-in rules: the first rule that fits, what rules may not say, names that nobody can take by a trick."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.domain.errors import ProofRefusedError, SignInRefusedError
from reservation_core.domain.people.aws_identities import aws_identity
from reservation_core.domain.people.sign_in import LocalUser, ProvedIdentity, SignInRule, let_in
from reservation_core.domain.statuses import Role, SignInMethod

ACCOUNT = "123456789012"
ISSUER = "https://issuer.example"
AWS, OIDC, KUBERNETES = SignInMethod.AWS, SignInMethod.OIDC, SignInMethod.KUBERNETES


def person(method: SignInMethod = OIDC, **attributes: str | tuple[str, ...]) -> ProvedIdentity:
    """Somebody with these attributes; `claim_x` is the claim x."""
    seen = {
        name.replace("claim_", "claim:"): (value,) if isinstance(value, str) else value
        for name, value in attributes.items()
    }
    return ProvedIdentity(method, "somebody", {"issuer": (ISSUER,), **seen} if method is OIDC else seen)


def by_mail(pattern: str, user: str, role: Role = Role.USER) -> SignInRule:
    return SignInRule(OIDC, {"issuer": ISSUER, "email": pattern}, user, role)


def test_the_first_rule_that_fits_counts() -> None:
    rules = [by_mail("ann@lab.example", "root", Role.ADMIN), by_mail("*@lab.example", "{email_name}")]
    assert let_in(rules, person(email="ann@lab.example")) == LocalUser("root", Role.ADMIN, False)
    assert let_in(rules, person(email="Bob@LAB.example")).user == "bob"
    for stranger in ("bob@lab.example.evil", "bob@evil.example", "bob@xlab.example@evil.example"):
        with pytest.raises(SignInRefusedError, match="Ask an administrator"):
            let_in(rules, person(email=stranger))


def test_another_methods_rule_never_fits() -> None:
    rule = SignInRule(KUBERNETES, {"namespace": "*", "service_account": "*"}, "ci")
    with pytest.raises(SignInRefusedError):
        let_in([rule], person(OIDC, namespace="ci", service_account="runner"))


def test_claims_count_where_one_of_their_values_fits() -> None:
    rule = SignInRule(OIDC, {"issuer": ISSUER, "claim:groups": "gpu-*"}, "{sub}")
    assert let_in([rule], person(sub="u1", claim_groups=("staff", "gpu-users"))).user == "u1"
    for groups in (("staff",), ()):
        with pytest.raises(SignInRefusedError):
            let_in([rule], person(sub="u1", claim_groups=groups))


def test_subjects_that_differ_in_case_are_not_made_one() -> None:
    rule = SignInRule(OIDC, {"issuer": ISSUER, "sub": "*"}, "{sub}")
    with pytest.raises(SignInRefusedError, match="gives no valid user name"):
        let_in([rule], person(sub="Ann"))
    exact = SignInRule(OIDC, {"issuer": ISSUER, "sub": "Ann"}, "ann")
    with pytest.raises(SignInRefusedError):
        let_in([exact], person(sub="ann"))


@pytest.mark.parametrize("lookalike", ["bo\u017fs@lab.example", "bos\u017f@lab.example", "BO\u017fS@LAB.EXAMPLE"])
def test_no_other_sign_is_taken_for_a_letter(lookalike: str) -> None:
    """Some signs beyond ASCII become an ASCII letter where case does not count: a long s would be an administrator."""
    with pytest.raises(SignInRefusedError):
        let_in([by_mail("boss@lab.example", "root", Role.ADMIN)], person(email=lookalike))


@pytest.mark.parametrize("lookalike", ["mi\u212ae@lab.example", "M\u0130ke@lab.example", "\u017fam@lab.example"])
def test_nor_in_a_name(lookalike: str) -> None:
    with pytest.raises(SignInRefusedError, match="gives no valid user name"):
        let_in([by_mail("*@lab.example", "{email_name}")], person(email=lookalike))


def test_a_pattern_with_many_stars_is_looked_at_once() -> None:
    """A regular expression would try each of the 10^10 ways to part this one, and nobody else would be served."""
    rule = SignInRule(OIDC, {"issuer": ISSUER, "claim:ref": "*-*-*-*x"}, "ci")
    with pytest.raises(SignInRefusedError):
        let_in([rule], person(sub="x", claim_ref="-" * 1024))
    assert let_in([rule], person(sub="x", claim_ref="-" * 1023 + "x")).user == "ci"


def test_a_pattern_means_itself_but_for_the_star() -> None:
    rule = SignInRule(OIDC, {"issuer": ISSUER, "claim:repository": "lab.org/[a]*"}, "ci")
    assert let_in([rule], person(sub="x", claim_repository="lab.org/[a]/x")).user == "ci"
    for other in ("labxorg/[a]", "lab.org/a", "xlab.org/[a]"):
        with pytest.raises(SignInRefusedError):
            let_in([rule], person(sub="x", claim_repository=other))


def fits(pattern: str, value: str) -> bool:
    """Every way to part the value, tried."""
    if not pattern:
        return not value
    if pattern[0] == "*":
        return any(fits(pattern[1:], value[i:]) for i in range(len(value) + 1))
    return bool(value) and value[0] == pattern[0] and fits(pattern[1:], value[1:])


def words(letters: str, longest: int) -> list[str]:
    """All of them."""
    return ["".join(word) for length in range(1, longest + 1) for word in product(letters, repeat=length)]


def test_short_patterns_fit_as_a_plain_search_says() -> None:
    for pattern in (word for word in words("ab*", 5) if word.count("*") <= 4):
        rule = SignInRule(OIDC, {"issuer": ISSUER, "sub": pattern}, "u")
        for value in words("ab", 4):
            assert (rule.user_of(person(sub=value)) == "u") == fits(pattern, value), (pattern, value)


@given(st.text("ab*", max_size=8).filter(lambda x: x and x.count("*") <= 4), st.text("ab", max_size=8))
def test_patterns_fit_as_a_plain_search_says(pattern: str, value: str) -> None:
    rule = SignInRule(OIDC, {"issuer": ISSUER, "sub": pattern}, "u")
    identity = person(sub=value) if value else person()
    assert (rule.user_of(identity) == "u") == (bool(value) and fits(pattern, value))


WRONG = {
    "an issuer alone": (OIDC, {"issuer": ISSUER}, "u"),
    "no issuer": (OIDC, {"email": "*@lab.example"}, "u"),
    "any issuer": (OIDC, {"issuer": "*", "email": "a@b.c"}, "u"),
    "no account": (AWS, {"iam_role": "x"}, "u"),
    "any account": (AWS, {"account": "*", "iam_role": "x"}, "u"),
    "an account alone": (AWS, {"account": ACCOUNT}, "u"),
    "no service account": (KUBERNETES, {"namespace": "ci"}, "u"),
    "what there is not": (KUBERNETES, {"namespace": "ci", "service_account": "x", "email": "a"}, "u"),
    "an address as a claim, which nobody verified": (OIDC, {"issuer": ISSUER, "claim:email": "*@lab.example"}, "u"),
    "nothing": (OIDC, {"issuer": ISSUER, "email": ""}, "u"),
    "too many stars": (OIDC, {"issuer": ISSUER, "email": "*****@lab.example"}, "u"),
    "no name": (OIDC, {"issuer": ISSUER, "sub": "x"}, "Not A Name"),
    "an unknown place": (OIDC, {"issuer": ISSUER, "sub": "x"}, "{session}"),
    "names of any domain": (OIDC, {"issuer": ISSUER, "email": "*"}, "{email_name}"),
    "names of many domains": (OIDC, {"issuer": ISSUER, "email": "*@*.example"}, "{email_name}"),
    "names without addresses": (OIDC, {"issuer": ISSUER, "sub": "*"}, "{email_name}"),
    "two open places": (KUBERNETES, {"namespace": "*", "service_account": "*"}, "{namespace}-{service_account}"),
    "accounts of several namespaces": (
        KUBERNETES,
        {"namespace": "team-*", "service_account": "*"},
        "{service_account}",
    ),
    "one place twice, open": (KUBERNETES, {"namespace": "*", "service_account": "x"}, "{namespace}-{namespace}"),
    "an open place that no condition holds": (AWS, {"account": ACCOUNT, "iam_role": "*"}, "{iam_role}-{session}"),
}


@pytest.mark.parametrize("what", WRONG)
def test_rules_that_say_more_than_they_mean_are_refused(what: str) -> None:
    method, conditions, user = WRONG[what]
    with pytest.raises(ValueError, match=r"\w"):
        SignInRule(method, conditions, user)


def test_two_places_where_one_is_said_exactly() -> None:
    rule = SignInRule(KUBERNETES, {"namespace": "ci", "service_account": "*"}, "{namespace}-{service_account}")
    assert let_in([rule], person(KUBERNETES, namespace="ci", service_account="a-b")).user == "ci-a-b"


NAMES = st.text("ab-", min_size=1, max_size=6)


@given(NAMES, NAMES)
def test_two_people_never_become_one_user(one: str, other: str) -> None:
    rule = SignInRule(KUBERNETES, {"namespace": "ci", "service_account": "*"}, "ci.{service_account}")
    users = set()
    for name in {one, other}:
        user = rule.user_of(person(KUBERNETES, namespace="ci", service_account=name))
        users.add(user)
    assert len(users) == len({one, other})


def test_arns_are_read() -> None:
    role = aws_identity(ACCOUNT, f"arn:aws:sts::{ACCOUNT}:assumed-role/gpu/ann@lab.example")
    assert role.attributes == {"account": (ACCOUNT,), "iam_role": ("gpu",), "session": ("ann@lab.example",)}
    user = aws_identity(ACCOUNT, f"arn:aws-us-gov:iam::{ACCOUNT}:user/a/b/ann")
    assert user.attributes == {"account": (ACCOUNT,), "iam_user": ("ann",)}


@pytest.mark.parametrize(
    ("arn", "error"),
    [
        (f"arn:aws:iam::{ACCOUNT}:root", SignInRefusedError),
        (f"arn:aws:sts::{ACCOUNT}:federated-user/ann", SignInRefusedError),
        (f"arn:aws:sts::{ACCOUNT}:assumed-role/a/b/c", SignInRefusedError),
        (f"arn:aws:iam::{ACCOUNT}:assumed-role/gpu/ann", SignInRefusedError),
        (f"arn:aws:sts::{ACCOUNT}:user/ann", SignInRefusedError),
        ("arn:aws:iam::999999999999:user/ann", ProofRefusedError),
        (f"arn:evil:iam::{ACCOUNT}:user/ann", ProofRefusedError),
        (f"arn:aws:iam::{ACCOUNT}:user/ann\n", ProofRefusedError),
        ("", ProofRefusedError),
    ],
)
def test_other_arns_let_nobody_in(arn: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        aws_identity(ACCOUNT, arn)


def test_what_is_said_names_who_was_proved() -> None:
    with pytest.raises(SignInRefusedError) as caught:
        let_in([], person(sub="x"))
    assert "e-mail" not in caught.value.detail
    assert re.search(r"somebody can't sign in here.*\[\[oidc\]\]", caught.value.detail)
