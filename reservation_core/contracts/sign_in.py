"""Sign-in over REST: proofs of identity, and the short-lived token for one."""

from typing import Annotated, Literal

from pydantic import Field, RootModel

from reservation_core.contracts.base import Time, Wire
from reservation_core.domain.statuses import Role, SignInMethod

_HeaderName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9-]{1,64}$")]
_HeaderValue = Annotated[str, Field(strict=True, min_length=1, max_length=8192)]
_Jwt = Annotated[
    str,
    Field(strict=True, min_length=10, max_length=16_384, pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*){2}$", repr=False),
]


class AwsProof(Wire):
    """A signed request for STS's GetCallerIdentity, which this server will send.

    A POST has its signature in the header Authorization and no query (its body is always
    `Action=GetCallerIdentity&Version=2011-06-15`), a GET is presigned. The header `X-GpuDev-Server-Id`, which names
    the server, must be signed.
    """

    method: Literal[SignInMethod.AWS]
    http_method: Literal["GET", "POST"]
    url: Annotated[str, Field(strict=True, min_length=1, max_length=8192, repr=False)]
    headers: Annotated[dict[_HeaderName, _HeaderValue], Field(max_length=10, repr=False)]


class OidcProof(Wire):
    """An ID token of a configured issuer, for this server's audience."""

    method: Literal[SignInMethod.OIDC]
    id_token: _Jwt


class KubernetesProof(Wire):
    """A token of a service account of this server's cluster, with this server as its audience."""

    method: Literal[SignInMethod.KUBERNETES]
    token: _Jwt


AnyProof = AwsProof | OidcProof | KubernetesProof


class SignIn(RootModel[Annotated[AnyProof, Field(discriminator="method")]]):
    """A proof of identity."""


class SignedIn(Wire):
    """The signed-in user, and a token that works until `expires_at` and is shown only once."""

    user: str
    role: Role
    token_id: str
    token: Annotated[str, Field(repr=False)]
    expires_at: Time
