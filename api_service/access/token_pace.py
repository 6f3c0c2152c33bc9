"""Slows clients that send wrong tokens, by address: bearer tokens, calendar addresses and browsers' sessions.

Only failures count. An address that has failed too often is answered 429 for each further wrong token, while right
tokens from it go on working: many people may share an address. Tokens from it are looked up few at a time, so that
guesses can't keep the database busy. Each API process counts for itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from api_service.access.auth import Authenticator
from api_service.problems import ProblemError
from api_service.requests import headers
from reservation_core.domain.network.client_addresses import source_of, trusted_networks
from reservation_core.domain.people.token_buckets import Pace, TokenBuckets, whole_seconds
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime.settings.components import ApiSettings

MOST_ADDRESSES = 20_000
_FORWARDED = b"x-forwarded-for"
_LOOK_UPS = 2
_PATIENCE_S = 5.0
"""How long a token of such an address waits for its lookup; then it is answered 429 as well."""
_UNAUTHENTICATED = 401


class TokenPace:
    """Counts wrong tokens by address. `now` is a clock in seconds that never goes back."""

    def __init__(
        self, settings: ApiSettings, authenticator: Authenticator, now: Callable[[], float] = time.monotonic
    ) -> None:
        auth = settings.auth
        self._authenticator = authenticator
        self._trusted = trusted_networks(settings.trusted_proxies)
        self._failures = TokenBuckets(Pace(auth.wrong_tokens_per_s, auth.wrong_tokens_burst), MOST_ADDRESSES)
        self._look_ups = asyncio.Semaphore(_LOOK_UPS)
        self._now = now

    async def principal(self, scope: Mapping[str, Any], header: str | None, *, session: bool = False) -> Principal:
        """The user of a request, by its Authorization header or a cookie's session. Raises ProblemError (401, 429)."""
        if header is None:
            return await self._authenticator.principal(None)
        found = self._authenticator.remembered(header, session=session)
        if found is not None:
            return found
        async with self.checking(scope, remembered=self._authenticator.was_right(header)):
            return await self._authenticator.principal(header, session=session)

    @asynccontextmanager
    async def checking(self, scope: Mapping[str, Any], *, remembered: bool = False) -> AsyncIterator[None]:
        """Look a token of a request up within the block, which raises ProblemError (401) for a wrong one.

        `remembered`: the token was right a short while ago. Raises ProblemError: 429 instead of 401 for an address with
        too many failures.
        """
        source = self._source(scope)
        wait = 0.0 if remembered else self._failures.wait(source, self._now())
        slow = wait > 0
        if slow:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._look_ups.acquire()
            except TimeoutError as error:
                raise _too_many(wait) from error
        try:
            yield
        except ProblemError as problem:
            if problem.status != _UNAUTHENTICATED:
                raise
            wait = self._failures.take(source, self._now())
            if not wait:
                raise
            raise _too_many(wait) from problem
        finally:
            if slow:
                self._look_ups.release()

    def _source(self, scope: Mapping[str, Any]) -> str:
        client = scope.get("client")
        forwarded = headers.values(scope, _FORWARDED) if self._trusted else ()
        return source_of(client[0] if client else None, forwarded, self._trusted)


def _too_many(wait: float) -> ProblemError:
    seconds = whole_seconds(wait)
    detail = (
        "Too many invalid tokens came from your address in a short time, and this token is "
        f"invalid, too, or could not be checked. Sign in again, or try again in {seconds} s."
    )
    return ProblemError(429, "too_many_wrong_tokens", detail, headers={"Retry-After": str(seconds)})
