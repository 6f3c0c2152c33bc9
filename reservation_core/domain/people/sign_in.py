"""The local user of a proved identity: the first matching rule names the user and role.

Rules see only attributes that the proof shows, and nothing else that the caller sends.
"""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reservation_core.domain.errors import SignInRefusedError
from reservation_core.domain.statuses import Role, SignInMethod
from reservation_core.domain.user_names import USER_NAME

_USER = re.compile(USER_NAME)
_PLACE = re.compile(r"\{([a-z_]+)\}")
_LONGEST_PATTERN = 256
_MOST_STARS = 4
_LONGEST_VALUE = 2048


ATTRIBUTES: Mapping[SignInMethod, frozenset[str]] = {
    SignInMethod.AWS: frozenset({"account", "iam_role", "session", "iam_user"}),
    SignInMethod.OIDC: frozenset({"issuer", "sub", "email"}),
    SignInMethod.KUBERNETES: frozenset({"namespace", "service_account"}),
}
"""The attributes that rules of each method may use; OIDC's also claims, as `claim:NAME`."""

_PLACES: Mapping[SignInMethod, frozenset[str]] = {
    SignInMethod.AWS: frozenset({"iam_role", "session", "iam_user"}),
    SignInMethod.OIDC: frozenset({"sub", "email", "email_name"}),
    SignInMethod.KUBERNETES: frozenset({"namespace", "service_account"}),
}
_NEEDED: Mapping[SignInMethod, tuple[frozenset[str], ...]] = {
    # At least one of each set: a rule with less would let in more people than intended.
    SignInMethod.AWS: (frozenset({"account"}), frozenset({"iam_role", "iam_user"})),
    SignInMethod.OIDC: (frozenset({"issuer"}),),
    SignInMethod.KUBERNETES: (frozenset({"namespace"}), frozenset({"service_account"})),
}
_EXACT = frozenset({"account", "issuer"})
_CASELESS = frozenset({"iam_role", "session", "iam_user", "email"})
"""Attributes whose issuer ignores case; all others are case-sensitive."""
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
"""Only ASCII letters are folded: some other letters would become ASCII ones, and their bearer another user."""


@dataclass(frozen=True, slots=True)
class ProvedIdentity:
    """A proved identity: `name` for people and the audit log, and attributes for rules, each with its values."""

    method: SignInMethod
    name: str
    attributes: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SignInRule:
    """Identities that match all `conditions` (`*` is any characters) are `user`, which may contain `{attribute}`.

    With `create` the user is created at the first sign-in. Raises ValueError for a rule that lets in too many.
    """

    method: SignInMethod
    conditions: Mapping[str, str]
    user: str
    role: Role = Role.USER
    create: bool = False

    def __post_init__(self) -> None:
        _check_conditions(self.method, self.conditions)
        _check_user(self)

    def user_of(self, identity: ProvedIdentity) -> str | None:
        """The user that this rule gives an identity; None if it does not match."""
        if identity.method is not self.method:
            return None
        known = identity.attributes
        if not all(_fits(name, pattern, known.get(name, ())) for name, pattern in self.conditions.items()):
            return None
        return _PLACE.sub(lambda place: _value(place[1], identity), self.user)


@dataclass(frozen=True, slots=True)
class LocalUser:
    """The result of the first matching rule."""

    user: str
    role: Role
    create: bool


def let_in(rules: Sequence[SignInRule], identity: ProvedIdentity) -> LocalUser:
    """Find the local user of an identity. Raises SignInRefusedError, which says what to ask an administrator for."""
    for rule in rules:
        user = rule.user_of(identity)
        if user is None:
            continue
        if not _USER.fullmatch(user):
            raise SignInRefusedError(
                f"{identity.name} can't sign in here: the account gives no valid user name. Ask an administrator for a"
                f" rule ([[{identity.method}]] of the sign-in file) that names your user."
            )
        return LocalUser(user, rule.role, rule.create)
    by_email = any("email" in rule.conditions for rule in rules if rule.method is identity.method)
    unverified = by_email and "email" not in identity.attributes
    fault = " It has no e-mail address that its issuer has verified." if unverified else ""
    raise SignInRefusedError(
        f"{identity.name} can't sign in here: no sign-in rule lets this account in.{fault} Ask an administrator to let"
        f" it in (by a rule [[{identity.method}]] of the sign-in file), or for a token."
    )


def _check_conditions(method: SignInMethod, conditions: Mapping[str, str]) -> None:
    for name, pattern in conditions.items():
        claim = method is SignInMethod.OIDC and name.startswith("claim:") and name != "claim:email"
        if name not in ATTRIBUTES[method] and not claim:
            raise ValueError(f"{name} is not known to rules of this kind")
        if not 0 < len(pattern) <= _LONGEST_PATTERN or pattern.count("*") > _MOST_STARS:
            raise ValueError(f"{name} must have 1 to {_LONGEST_PATTERN} characters, and at most {_MOST_STARS} `*`")
        if name in _EXACT and "*" in pattern:
            raise ValueError(f"{name} must be written exactly, without `*`")
    for needed in _NEEDED[method]:
        if not needed & conditions.keys():
            raise ValueError(f"{' or '.join(sorted(needed))} must be said")
    if method is SignInMethod.OIDC and conditions.keys() <= {"issuer"}:
        raise ValueError("sub, email or claims is required: an issuer alone would let everybody in")


def _check_user(rule: SignInRule) -> None:
    places = _PLACE.findall(rule.user)
    open_places = {name for name, pattern in rule.conditions.items() if "*" in pattern}
    for place in places:
        if place not in _PLACES[rule.method]:
            raise ValueError(f"user: there is no {{{place}}} in rules of this kind")
    sources = ["email" if place == "email_name" else place for place in places]
    if len([source for source in sources if "*" in rule.conditions.get(source, "*")]) > 1:
        # `a-b` + `c` and `a` + `b-c` would be one user.
        raise ValueError("user: only one {...} may stand for what the rule leaves open; say the others exactly")
    if "service_account" in places and {"namespace", "service_account"} <= open_places:
        raise ValueError("user: {service_account} needs one namespace; accounts of several would be one user")
    email = rule.conditions.get("email", "*")
    if "email_name" in places and ("@" not in email or "*" in email.rpartition("@")[2]):
        raise ValueError('user: {email_name} needs an email of one domain, such as email = "*@lab.example"')
    if not _USER.fullmatch(_PLACE.sub("x", rule.user)):
        raise ValueError("user must become a user's name: lower-case letters, digits and . _ @ + -, at most 254")


def _fits(name: str, pattern: str, values: Sequence[str]) -> bool:
    if name not in _CASELESS:
        return any(len(value) <= _LONGEST_VALUE and _matches(pattern, value) for value in values)
    wanted = _folded(pattern)
    return any(len(value) <= _LONGEST_VALUE and _matches(wanted, _folded(value)) for value in values)


def _matches(pattern: str, value: str) -> bool:
    """Match a pattern, each part at its first occurrence: a regular expression could backtrack for hours."""
    first, *others = pattern.split("*")
    if not others:
        return value == first
    *between, last = others
    at, end = len(first), len(value) - len(last)
    if at > end or not value.startswith(first) or not value.endswith(last):
        return False
    for part in between:
        position = value.find(part, at, end)
        if position < 0:
            return False
        at = position + len(part)
    return True


def _folded(text: str) -> str:
    return text.translate(_LOWER)


def _value(place: str, identity: ProvedIdentity) -> str:
    """The value of a place; `?`, which no user name contains, if there is not exactly one."""
    attribute = "email" if place == "email_name" else place
    values = identity.attributes.get(attribute, ())
    if len(values) != 1:
        return "?"
    value = _folded(values[0]) if attribute in _CASELESS else values[0]
    return value.rpartition("@")[0] if place == "email_name" else value
