"""An issuer's public keys, fetched on demand and cached.

An unknown key makes us fetch again, but one issuer's keys are fetched at most every `every_s`, whatever tokens arrive.
"""

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from reservation_core.adapters.identity.outside import Outside
from reservation_core.domain.people.id_tokens import IssuerRules
from reservation_core.ports.people.proofs import ProofUnavailableError

_MOST_KEYS = 100
_SHORTEST_RSA = 2048
_URL = re.compile("[!-~]{1,2048}")
_KTYS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Key types by the first two letters of the algorithm."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KeySetRules:
    """At most one fetch per `every_s`; keys are fetched again after `fresh_s`, and unusable after `stale_s`."""

    every_s: float = 30.0
    fresh_s: float = 3600.0
    stale_s: float = 86_400.0


class KeySet:
    """The keys of one issuer."""

    def __init__(self, issuer: IssuerRules, outside: Outside, rules: KeySetRules) -> None:
        self._issuer = issuer
        self._outside = outside
        self._rules = rules
        self._keys: dict[tuple[str | None, str], Any] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failure = "it was not asked yet"
        self._fetching = asyncio.Lock()

    async def key(self, kid: str | None, algorithm: str) -> Any | None:
        """The public key for a token's header; None for an unknown key. Raises ProofUnavailableError."""
        known = self._find(kid, algorithm)
        if known is None or self._older_than(self._rules.fresh_s):
            async with self._fetching:
                if self._find(kid, algorithm) is None or self._older_than(self._rules.fresh_s):
                    await self._fetch_if_due()
            known = self._find(kid, algorithm)
        if known is None and self._older_than(self._rules.stale_s):
            raise ProofUnavailableError(f"The keys of {self._issuer.url} can't be fetched: {self._failure}.")
        return known

    def _find(self, kid: str | None, algorithm: str) -> Any | None:
        if self._older_than(self._rules.stale_s):
            return None
        if kid is not None:
            return self._keys.get((kid, algorithm))
        fitting = [key for (_, alg), key in self._keys.items() if alg == algorithm]
        return fitting[0] if len(fitting) == 1 else None

    def _older_than(self, seconds: float) -> bool:
        return self._fetched_at is None or asyncio.get_running_loop().time() - self._fetched_at > seconds

    async def _fetch_if_due(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._tried_at is not None and now - self._tried_at < self._rules.every_s:
            return
        self._tried_at = now
        try:
            self._keys = await self._fetch()
        except ProofUnavailableError as problem:
            self._failure = str(problem).rstrip(".")
            _log.warning("issuers_keys_not_fetched", issuer=self._issuer.url, problem=self._failure)
            return
        self._fetched_at = now

    async def _fetch(self) -> dict[tuple[str | None, str], Any]:
        url = self._issuer.jwks_url
        if url is None:
            discovery = await self._json(self._issuer.url.rstrip("/") + "/.well-known/openid-configuration")
            url = discovery.get("jwks_uri")
            if discovery.get("issuer") != self._issuer.url or not isinstance(url, str):
                raise ProofUnavailableError(f"{self._issuer.url} has a discovery document that is not its own.")
        keys = (await self._json(url)).get("keys")
        if not isinstance(keys, list) or len(keys) > _MOST_KEYS:
            raise ProofUnavailableError(f"{url} holds no key set, or one with more than {_MOST_KEYS} keys.")
        usable: dict[tuple[str | None, str], Any] = {}
        for jwk in keys:
            for algorithm in self._issuer.algorithms:
                key = _key(jwk, algorithm)
                if key is not None:
                    usable[jwk.get("kid"), algorithm] = key
        return usable

    async def _json(self, url: str) -> dict[str, Any]:
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ProofUnavailableError(
                f"{self._issuer.url} gives an address of its keys that is not a URL."
            ) from error
        if not _URL.fullmatch(url) or parts.scheme != "https" or not parts.hostname or parts.username or parts.fragment:
            raise ProofUnavailableError(f"{self._issuer.url} names keys at an address that is not https.")
        answer = await self._outside.ask_url("GET", url)
        if answer.status != 200:
            raise ProofUnavailableError(f"{parts.netloc} answered with status {answer.status}.")
        try:
            thing = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise ProofUnavailableError(f"{parts.netloc} answered with something that is not JSON.") from error
        if not isinstance(thing, dict):
            raise ProofUnavailableError(f"{parts.netloc} answered with something that is no JSON object.")
        return thing


def _key(described: Any, algorithm: str) -> Any | None:
    """A public key that may verify signatures of this algorithm; None for other keys."""
    if not isinstance(described, dict) or str(described.get("kty")) not in _KTYS.values():
        return None
    kid = described.get("kid")
    if not (kid is None or isinstance(kid, str)):
        return None
    if described.get("use", "sig") != "sig" or described.get("alg", algorithm) != algorithm or "d" in described:
        return None
    if described["kty"] != _KTYS[algorithm[:2]]:
        return None
    try:
        key = jwt.PyJWK.from_dict(described, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return None if isinstance(key, RSAPublicKey) and key.key_size < _SHORTEST_RSA else key
