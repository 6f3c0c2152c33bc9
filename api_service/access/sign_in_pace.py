"""Bound sign-in attempts, by the client's address and by the party that vouches for the proof.

A client that signs in has no token yet: only its address is known. Each API process counts for itself. Attempts count
whether they succeed or not.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, assert_never
from urllib.parse import urlsplit

import structlog

from api_service.problems import ProblemError
from api_service.requests import headers
from reservation_core.contracts.sign_in import AnyProof, AwsProof, KubernetesProof, OidcProof
from reservation_core.domain.network.client_addresses import source_of, trusted_networks
from reservation_core.domain.people.token_buckets import Pace, TokenBuckets, whole_seconds
from reservation_core.domain.statuses import SignInMethod
from reservation_core.runtime.settings.components import ApiSettings

MOST_ADDRESSES = 20_000
_FORWARDED = b"x-forwarded-for"
_log = structlog.get_logger(__name__)


class SignInPace:
    """Admits sign-in attempts. `now` is a monotonic clock in seconds."""

    def __init__(self, settings: ApiSettings, now: Callable[[], float] = time.monotonic) -> None:
        auth = settings.auth
        self._trusted = trusted_networks(settings.trusted_proxies)
        self._sts_hosts = frozenset(auth.sts_hosts)
        self._addresses = TokenBuckets(Pace(auth.address_per_s, auth.address_burst), MOST_ADDRESSES)
        # The keys are names of methods, and hosts that the settings list.
        self._vouchers = TokenBuckets(Pace(auth.voucher_per_s, auth.voucher_burst), len(auth.sts_hosts) + 2)
        self._now = now
        self._warned = False

    def admit(self, scope: Mapping[str, Any]) -> None:
        """Count an attempt by its address. Raises ProblemError (429)."""
        client = scope.get("client")
        source = source_of(client[0] if client else None, headers.values(scope, _FORWARDED), self._trusted)
        wait = self._addresses.take(source, self._now())
        if wait:
            self._warn_of_unlisted_proxy(scope)
            raise _too_many("from your address", wait)

    def admit_proof(self, proof: AnyProof) -> None:
        """Count an attempt by the party that vouches for its proof. Raises ProblemError (429)."""
        voucher = self._voucher(proof)
        if voucher is not None:
            self._admit_by(voucher, proof.method)

    def admit_issuer(self) -> None:
        """Count an attempt whose ID token is still to come from an issuer. Raises ProblemError (429)."""
        self._admit_by(SignInMethod.OIDC.value, SignInMethod.OIDC)

    def _admit_by(self, voucher: str, method: SignInMethod) -> None:
        wait = self._vouchers.take(voucher, self._now())
        if wait:
            raise _too_many(f"by {method}", wait)

    def _voucher(self, proof: AnyProof) -> str | None:
        match proof:
            case AwsProof():
                # A token meant for another host is refused without asking that host.
                try:
                    host = urlsplit(proof.url).netloc
                except ValueError:
                    return None
                return host if host in self._sts_hosts else None
            case OidcProof() | KubernetesProof():
                return proof.method.value
            case _:
                assert_never(proof)

    def _warn_of_unlisted_proxy(self, scope: Mapping[str, Any]) -> None:
        """Warn once: all clients behind an unlisted proxy share one bucket."""
        if not self._warned and not self._trusted and headers.first(scope, _FORWARDED) is not None:
            self._warned = True
            _log.warning("sign_ins_share_a_bucket", why="X-Forwarded-For came, and GPU_DEV_TRUSTED_PROXIES is empty")


def _too_many(which: str, wait: float) -> ProblemError:
    seconds = whole_seconds(wait)
    detail = f"Too many sign-ins {which} in a short time. Try again in {seconds} s."
    return ProblemError(429, "too_many_sign_ins", detail, headers={"Retry-After": str(seconds)})
