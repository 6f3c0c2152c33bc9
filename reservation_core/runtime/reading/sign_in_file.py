"""The sign-in file in TOML: trusted issuers, and rules that map identities to users; the first matching rule counts.

[[issuer]]
url = "https://accounts.google.com"
audiences = ["https://gpus.example.org"]

[[oidc]]
issuer = "https://accounts.google.com"
email = "*@lab.example"
user = "{email_name}"
create = true

[[aws]]
account = "123456789012"
iam_role = "gpu-admins"
user = "root"
role = "admin"

[[kubernetes]]
namespace = "ci"
service_account = "runner"
user = "ci"
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from reservation_core.domain.complaints import complaint
from reservation_core.domain.people.id_tokens import ALGORITHMS, IssuerRules
from reservation_core.domain.people.sign_in import SignInRule
from reservation_core.domain.statuses import Role, SignInMethod
from reservation_core.domain.user_names import LONGEST_USER_NAME
from reservation_core.runtime.settings.error import SettingsError

_LARGEST = 2**20
_MOST = 1000


def _https(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError("must be an https address without query")
    return value


def _algorithms(value: frozenset[str]) -> frozenset[str]:
    if not value or not value <= ALGORITHMS:
        raise ValueError(f"must be some of {', '.join(sorted(ALGORITHMS))}")
    return value


_Word = Annotated[str, Field(strict=True, min_length=1, max_length=512)]
_Url = Annotated[str, Field(strict=True, max_length=512), AfterValidator(_https)]


class _Issuer(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    url: _Url
    audiences: Annotated[frozenset[_Word], Field(min_length=1, max_length=50)]
    algorithms: Annotated[frozenset[str], AfterValidator(_algorithms)] = frozenset({"RS256", "ES256"})
    authorized_parties: Annotated[frozenset[_Word], Field(max_length=200)] = frozenset()
    jwks_url: _Url | None = None

    def rules(self) -> IssuerRules:
        return IssuerRules(self.url, self.audiences, self.algorithms, self.authorized_parties, self.jwks_url)


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    user: Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_USER_NAME)]
    role: Role = Role.USER
    create: Annotated[bool, Field(strict=True)] = False


class _AwsRule(_Rule):
    account: Annotated[str, Field(strict=True, pattern=r"^[0-9]{12}$")]
    iam_role: _Word | None = None
    iam_user: _Word | None = None
    session: _Word | None = None


class _OidcRule(_Rule):
    issuer: _Url
    sub: _Word | None = None
    email: _Word | None = None
    claims: Annotated[dict[_Word, _Word], Field(max_length=20)] = {}


class _KubernetesRule(_Rule):
    namespace: _Word
    service_account: _Word


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    issuer: Annotated[tuple[_Issuer, ...], Field(max_length=20)] = ()
    aws: Annotated[tuple[_AwsRule, ...], Field(max_length=_MOST)] = ()
    oidc: Annotated[tuple[_OidcRule, ...], Field(max_length=_MOST)] = ()
    kubernetes: Annotated[tuple[_KubernetesRule, ...], Field(max_length=_MOST)] = ()


@dataclass(frozen=True, slots=True)
class SignInFile:
    """The content of the file."""

    issuers: tuple[IssuerRules, ...] = ()
    rules: tuple[SignInRule, ...] = ()

    @property
    def methods(self) -> frozenset[SignInMethod]:
        """The methods of sign-in that the rules allow."""
        return frozenset(rule.method for rule in self.rules)


def read_sign_in_file(path: Path) -> SignInFile:
    """Read the file. Raises SettingsError with the fault."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except OSError as error:
        raise SettingsError(f"GPU_DEV_AUTH__FILE: {path} can't be read: {error.strerror}. Correct the path.") from error
    if len(raw) > _LARGEST:
        raise SettingsError(f"GPU_DEV_AUTH__FILE: {path} is larger than {_LARGEST} bytes.")
    return parse(raw, f"GPU_DEV_AUTH__FILE: {path}")


def parse(raw: bytes, source: str) -> SignInFile:
    """Parse a file's content. Raises SettingsError; `source` names the file in its text."""
    try:
        content = _File.model_validate(tomllib.loads(raw.decode("utf-8")))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{source}: not TOML: {error}.") from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise SettingsError(f"{source}: {where}: {complaint(problem)}.") from error
    urls = [issuer.url for issuer in content.issuer]
    if len(set(urls)) != len(urls):
        raise SettingsError(f"{source}: issuer: one address stands twice.")
    rules: list[SignInRule] = []
    by_method: Mapping[SignInMethod, tuple[_Rule, ...]] = {
        SignInMethod.AWS: content.aws,
        SignInMethod.OIDC: content.oidc,
        SignInMethod.KUBERNETES: content.kubernetes,
    }
    for method, listed in by_method.items():
        for place, rule in enumerate(listed):
            conditions = _conditions(rule)
            if "issuer" in conditions and conditions["issuer"] not in urls:
                raise SettingsError(f"{source}: oidc.{place}: its issuer is not among the [[issuer]]s.")
            try:
                rules.append(SignInRule(method, conditions, rule.user, rule.role, rule.create))
            except ValueError as error:
                raise SettingsError(f"{source}: {method}.{place}: {error}.") from error
    return SignInFile(tuple(issuer.rules() for issuer in content.issuer), tuple(rules))


def _conditions(rule: _Rule) -> dict[str, str]:
    conditions: dict[str, Any] = rule.model_dump(exclude={"user", "role", "create"}, exclude_none=True)
    claims = conditions.pop("claims", {})
    return {**conditions, **{f"claim:{name}": value for name, value in claims.items()}}
