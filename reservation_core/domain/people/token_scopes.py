"""What a token may do and until when, and what a token made with it may get."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.people.token_budgets import Budget
from reservation_core.domain.short_durations import in_words
from reservation_core.domain.statuses import TokenScope
from reservation_core.domain.time_words import time_words

EVERYTHING = frozenset(TokenScope)
PERSONAL = EVERYTHING - {TokenScope.ADMIN}
"""A token with all of these acts as the person: it may change notifications and revoke tokens."""

LONGEST_LINE = 10
"""The longest chain of tokens, each made with the one before; they expire together."""


def in_order(scopes: frozenset[TokenScope]) -> list[TokenScope]:
    """The scopes in their usual order."""
    return [scope for scope in TokenScope if scope in scopes]


@dataclass(frozen=True, slots=True)
class TokenReach:
    """A token's scopes, expiry (None: never), and number of tokens before it in its chain.

    `budget` is its own, or that of the nearest token before it.
    """

    scopes: frozenset[TokenScope]
    expires_at: datetime | None
    generation: int = 0
    budget: Budget | None = None

    def passed_on(
        self,
        scopes: frozenset[TokenScope] | None,
        expires_in: timedelta | None,
        longest: timedelta | None,
        now: datetime,
    ) -> "TokenReach":
        """The reach of a token made with this one: the requested scopes, or by default all of this one's.

        `expires_in` None: no expiry. No token lasts longer than `longest` (None: no bound). Raises ForbiddenError if
        more is requested than this token has.
        """
        if self.generation >= LONGEST_LINE:
            raise ForbiddenError(
                f"The token that you use is the {LONGEST_LINE}th in a chain of tokens, each made with the one before."
                " Make the new token with an earlier one."
            )
        beyond = (scopes or frozenset()) - self.scopes
        if beyond:
            raise ForbiddenError(
                f"The token that you use does not have the scope {', '.join(in_order(beyond))}, so tokens made"
                f" with it can't have it. Choose from: {', '.join(in_order(self.scopes))}."
            )
        expires_at = None if expires_in is None else now + expires_in
        if longest is not None and (expires_in is None or expires_in > longest):
            raise ForbiddenError(f"Tokens of this server work for at most {in_words(longest)}. Choose a shorter time.")
        if self.expires_at is not None and (expires_at is None or expires_at > self.expires_at):
            raise ForbiddenError(
                f"The token that you use ends at {time_words(self.expires_at, UTC, seconds=True)}, and tokens made "
                "with it can't last longer. Choose a shorter time, or sign in with a token that lasts longer."
            )
        return TokenReach(scopes or self.scopes, expires_at, self.generation + 1)
