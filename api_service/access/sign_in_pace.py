"""How often somebody may try to sign in: whoever does has no token yet, so all that is known of them is where they are.

Each API process counts for itself. Tries count whether they succeed or not.
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
from reservation_core.domain.people.sign_in import SignInMethod
from reservation_core.domain.people.token_buckets import Pace, TokenBuckets, whole_seconds
from reservation_core.runtime.settings.components import ApiSettings

MOST_ADDRESSES = 20_000
_FORWARDED = b"x-forwarded-for"
_log = structlog.get_logger(__name__)


class SignInPace:
    """Lets tries through, each from somewhere and on somebody's word. `now` is a clock in seconds that nobody sets."""

    def __init__(self, settings: ApiSettings, now: Callable[[], float] = time.monotonic) -> None:
        auth = settings.auth
        self._trusted = trusted_networks(settings.trusted_proxies)
        self._sts_hosts = frozenset(auth.sts_hosts)
        self._addresses = TokenBuckets(Pace(auth.address_per_s, auth.address_burst), MOST_ADDRESSES)
        # Keys are our own words here, and hosts that the settings list.
        self._vouchers = TokenBuckets(Pace(auth.voucher_per_s, auth.voucher_burst), len(auth.sts_hosts) + 2)
        self._now = now
        self._told = False

    def admit(self, scope: Mapping[str, Any]) -> None:
        """Count a try by where it comes from. Raises ProblemError (429)."""
        client = scope.get("client")
        source = source_of(client[0] if client else None, headers.values(scope, _FORWARDED), self._trusted)
        wait = self._addresses.take(source, self._now())
        if wait:
            self._tell(scope)
            raise _too_many("from your address", wait)

    def admit_word(self, proof: AnyProof) -> None:
        """Count a try by whose word it is that we would have to ask for or check. Raises ProblemError (429)."""
        voucher = self._voucher(proof)
        if voucher is not None:
            self._admit_by(voucher, proof.method)

    def admit_issuers_word(self) -> None:
        """The same where an issuer is still to be asked for an ID token. Raises ProblemError (429)."""
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

    def _tell(self, scope: Mapping[str, Any]) -> None:
        """Once: a proxy that nobody listed has all its clients share one bucket, and they should not."""
        if not self._told and not self._trusted and headers.first(scope, _FORWARDED) is not None:
            self._told = True
            _log.warning(
                "sign_ins_share_a_bucket", why="X-Forwarded-For came, and GPU_DEV_TRUSTED_PROXIES lists nobody"
            )


def _too_many(which: str, wait: float) -> ProblemError:
    seconds = whole_seconds(wait)
    detail = f"Too many sign-ins {which} in a short time. Try again in {seconds} s."
    return ProblemError(429, "too_many_sign_ins", detail, headers={"Retry-After": str(seconds)})
