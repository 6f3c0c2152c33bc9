"""Settings of signing in with proofs of others: AWS, OpenID Connect issuers, the Kubernetes cluster."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from reservation_core.domain.people.aws_signed_requests import STS_HOST
from reservation_core.runtime.settings.section import Section


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return [word for part in value.strip(" []").split(",") if (word := part.strip(" \"'"))]


def _sts_hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    for host in value:
        if not STS_HOST.fullmatch(host):
            raise ValueError(
                f"{host!r} is no host of AWS's STS, such as sts.amazonaws.com or sts.eu-west-1.amazonaws.com"
            )
    return value


_ServerIds = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[!-+.-~\--]{1,253}$")], ...],
    NoDecode,
    BeforeValidator(_split),
    Field(max_length=20),
]
_StsHosts = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(_split),
    Field(min_length=1, max_length=50),
    AfterValidator(_sts_hosts),
]


class AuthSettings(Section):
    """How people sign in without a token that somebody gave them. Times are in seconds."""

    # TOML: issuers that are believed, and who is let in as whom. Without one nobody signs in so.
    file: Path | None = None
    # The addresses that people know this server by: what AWS requests and service accounts' tokens must be meant for.
    server_ids: _ServerIds = ()
    token_s: Annotated[float, Field(ge=60, le=86_400)] = 3600  # how long a token of a sign-in lasts
    # How long a token that people make lasts at most; 0: as long as the one that it is made with.
    longest_token_s: Annotated[float, Field(ge=0, le=315_360_000)] = 0
    sts_hosts: _StsHosts = ("sts.amazonaws.com",)
    aws_max_age_s: Annotated[float, Field(ge=30, le=900)] = 300  # how old a signed request may be
    oidc_max_age_s: Annotated[float, Field(ge=60, le=86_400)] = 3600  # how old an ID token may be
    keys_every_s: Annotated[float, Field(ge=1, le=3600)] = 30  # an issuer's keys are looked for so often at most
    ca_file: Path | None = None  # PEM: whom to trust beside the system's certificate authorities
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 10  # for asking AWS, an issuer or the API server
    parallel: Annotated[int, Field(ge=1, le=100)] = 8  # so many are asked at once; eight times as many wait
    # How often one address may try in the long run, and how often at once; each API process counts for itself.
    address_per_s: Annotated[float, Field(ge=0.01, le=10_000)] = 2
    address_burst: Annotated[int, Field(ge=1, le=100_000)] = 60
    # How many wrong tokens an address may send in the long run, and at once; right ones are never held up by these.
    wrong_tokens_per_s: Annotated[float, Field(ge=0.01, le=10_000)] = 2
    wrong_tokens_burst: Annotated[int, Field(ge=1, le=100_000)] = 100
    # The same for the word of each: of every host of AWS's, of the issuers, of the cluster.
    voucher_per_s: Annotated[float, Field(ge=0.01, le=10_000)] = 50
    voucher_burst: Annotated[int, Field(ge=1, le=100_000)] = 200

    @property
    def longest_token(self) -> timedelta | None:
        """How long a token that people make works at most; None: there is no bound."""
        return timedelta(seconds=self.longest_token_s) if self.longest_token_s else None

    @property
    def lasts(self) -> timedelta:
        """How long a token of a sign-in works."""
        return timedelta(seconds=self.token_s)
