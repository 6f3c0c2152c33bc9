"""Bound concurrent requests to identity providers: anonymous sign-ins can trigger any number of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reservation_core.ports.people.proofs import ProofUnavailableError


@dataclass(frozen=True, slots=True)
class TurnRules:
    """The number of concurrent and of waiting requests, and the seconds for both."""

    parallel: int = 8
    waiting: int = 64
    timeout_s: float = 10.0


class SignInTurns:
    """The turns of one kind of sign-in."""

    def __init__(self, rules: TurnRules) -> None:
        self._rules = rules
        self._free = asyncio.Semaphore(rules.parallel)
        self._wanted = 0

    @asynccontextmanager
    async def turn(self, whom: str) -> AsyncIterator[None]:
        """Wait for a turn to ask `whom`, and hold it during the block. Raises ProofUnavailableError."""
        if self._wanted >= self._rules.parallel + self._rules.waiting:
            raise ProofUnavailableError("Too many users are signing in at this moment. Try again in a few seconds.")
        self._wanted += 1
        try:
            async with asyncio.timeout(self._rules.timeout_s) as limit, self._free:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ProofUnavailableError(f"{whom} did not answer within {self._rules.timeout_s:g} s.") from error
        finally:
            self._wanted -= 1
