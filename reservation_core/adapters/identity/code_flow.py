"""The authorization code flow with PKCE, against an issuer that the settings name."""

import base64
import binascii
import hmac
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from authlib.common.security import generate_token
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from reservation_core.adapters.identity.outside import Outside, OutsideAnswer
from reservation_core.domain.errors import ProofRefusedError
from reservation_core.ports.people.code_flow import PendingSignIn
from reservation_core.ports.people.proofs import ProofUnavailableError

_SCOPE = "openid email profile"
_RANDOM = 48
_LONGEST_CODE = 4096


@dataclass(frozen=True, slots=True)
class Client:
    """Our registration with the issuer. Without a secret it is a public client."""

    issuer: str
    client_id: str
    redirect_uri: str
    secret: str | None = field(default=None, repr=False)


class IssuerCodeFlow:
    """See ports.people.code_flow.CodeFlow. Sign-ins are rare, so every one reads the issuer's discovery document."""

    def __init__(self, client: Client, outside: Outside) -> None:
        self._client = client
        self._outside = outside

    async def begin(self, *, other_account: bool = False) -> PendingSignIn:
        """Raises ProofUnavailableError."""
        choice = {"prompt": "select_account"} if other_account else {}
        endpoint = self._https(await self._discover(), "authorization_endpoint")
        state, nonce, verifier = generate_token(_RANDOM), generate_token(_RANDOM), generate_token(_RANDOM)
        url: str = prepare_grant_uri(
            endpoint,
            self._client.client_id,
            "code",
            redirect_uri=self._client.redirect_uri,
            scope=_SCOPE,
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
            **choice,
        )
        return PendingSignIn(url, state, nonce, verifier)

    async def finish(self, code: str, begun: PendingSignIn) -> str:
        """Raises ProofRefusedError, ProofUnavailableError."""
        if not 0 < len(code) <= _LONGEST_CODE:
            raise ProofRefusedError("The issuer sent no valid code. Start the sign-in again.")
        answer = await self._exchange(await self._discover(), code, begun.verifier)
        token = answer.json_object().get("id_token") if answer.status == 200 else None
        if answer.status >= 500:
            raise ProofUnavailableError(f"{self._client.issuer} answered with status {answer.status}.")
        if not isinstance(token, str):
            raise ProofRefusedError(
                "The issuer does not accept this code: it was used or is too old. Start the sign-in again."
            )
        if not hmac.compare_digest(_nonce_in(token).encode(), begun.nonce.encode()):
            raise ProofRefusedError("The ID token belongs to another sign-in. Start the sign-in again.")
        return token

    async def _exchange(self, discovery: dict[str, Any], code: str, verifier: str) -> OutsideAnswer:
        client = self._client
        more = {"code": code, "code_verifier": verifier, "client_id": client.client_id}
        headers = [("content-type", "application/x-www-form-urlencoded")]
        if client.secret is not None:
            methods = discovery.get("token_endpoint_auth_methods_supported")
            if isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods:
                more["client_secret"] = client.secret
            else:
                # RFC 6749, 2.3.1: both parts are form-encoded before they are joined.
                joined = f"{quote(client.client_id, safe='')}:{quote(client.secret, safe='')}"
                headers.append(("authorization", f"Basic {base64.b64encode(joined.encode()).decode()}"))
        body: str = prepare_token_request("authorization_code", redirect_uri=client.redirect_uri, **more)
        headers.append(("content-length", str(len(body))))
        return await self._outside.ask_url("POST", self._https(discovery, "token_endpoint"), headers, body.encode())

    async def _discover(self) -> dict[str, Any]:
        url = f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration"
        answer = await self._outside.ask_url("GET", url)
        discovery = answer.json_object() if answer.status == 200 else {}
        if discovery.get("issuer") != self._client.issuer:
            raise ProofUnavailableError(f"{self._client.issuer} has no discovery document of its own.")
        return discovery

    def _https(self, discovery: dict[str, Any], name: str) -> str:
        url = discovery.get(name)
        parts = urlsplit(url) if isinstance(url, str) and url.isascii() and url.isprintable() else None
        if not isinstance(url, str) or parts is None or parts.scheme != "https" or not parts.hostname or parts.username:
            raise ProofUnavailableError(f"{self._client.issuer} names no https address as its {name}.")
        return url


def _nonce_in(token: str) -> str:
    """The nonce in an ID token, whose signature is checked later."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, binascii.Error, RecursionError):
        return ""
    nonce = claims.get("nonce") if isinstance(claims, dict) else None
    return nonce if isinstance(nonce, str) else ""
