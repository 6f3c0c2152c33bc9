"""Settings of sign-in with AWS, OpenID Connect issuers and the Kubernetes cluster."""

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
    tuple[str, ...], NoDecode, BeforeValidator(_split), Field(min_length=1, max_length=50), AfterValidator(_sts_hosts)
]


class AuthSettings(Section):
    """Sign-in without a token of an administrator. Times are in seconds."""

    # TOML: trusted issuers, and rules that map identities to users. Without it, this sign-in is off.
    file: Path | None = None
    # The public addresses of this server: AWS requests and service account tokens must be issued for one of them.
    server_ids: _ServerIds = ()
    token_s: Annotated[float, Field(ge=60, le=86_400)] = 3600  # lifetime of a sign-in's token
    # Longest lifetime of a token that a user makes; 0: it may last as long as the token that makes it.
    longest_token_s: Annotated[float, Field(ge=0, le=315_360_000)] = 0
    sts_hosts: _StsHosts = ("sts.amazonaws.com",)  # hosts of AWS's STS for which a signed request is accepted
    aws_max_age_s: Annotated[float, Field(ge=30, le=900)] = 300  # the oldest signed request that is accepted
    oidc_max_age_s: Annotated[float, Field(ge=60, le=86_400)] = 3600  # the oldest ID token that is accepted
    keys_every_s: Annotated[float, Field(ge=1, le=3600)] = 30  # shortest time between two fetches of an issuer's keys
    ca_file: Path | None = None  # PEM: certificate authorities to trust in addition to the system's
    # Longest time of a request to AWS, an issuer or the API server
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 10
    # Sign-ins that are checked at the same time; eight times as many may wait
    parallel: Annotated[int, Field(ge=1, le=100)] = 8
    # Sign-in attempts a second from one address, in the long run; every API process counts separately.
    address_per_s: Annotated[float, Field(ge=0.01, le=10_000)] = 2
    address_burst: Annotated[int, Field(ge=1, le=100_000)] = 60  # sign-in attempts from one address at once
    # Wrong tokens a second from one address, in the long run; they never delay valid ones.
    wrong_tokens_per_s: Annotated[float, Field(ge=0.01, le=10_000)] = 2
    wrong_tokens_burst: Annotated[int, Field(ge=1, le=100_000)] = 100  # wrong tokens from one address at once
    # Requests a second to each identity provider (a host of AWS, an issuer, the cluster), in the long run.
    voucher_per_s: Annotated[float, Field(ge=0.01, le=10_000)] = 50
    voucher_burst: Annotated[int, Field(ge=1, le=100_000)] = 200  # requests to one identity provider at once

    @property
    def longest_token(self) -> timedelta | None:
        """The longest lifetime of a token that a user makes; None: no bound."""
        return timedelta(seconds=self.longest_token_s) if self.longest_token_s else None

    @property
    def lasts(self) -> timedelta:
        """The lifetime of a sign-in's token."""
        return timedelta(seconds=self.token_s)
