"""How far a token reaches: what may be done with it and until when, and what a token that is made with it may get."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.people.token_budgets import Budget


class TokenScope(StrEnum):
    """What a token is good for, of what its user may do."""

    READ = "read"
    SUBMIT = "submit"
    BOOK = "book"
    SESSIONS = "sessions"
    ADMIN = "admin"


EVERYTHING = frozenset(TokenScope)
PERSONAL = EVERYTHING - {TokenScope.ADMIN}
"""Whoever has all of these acts as the person: changes how they are told of things, and ends their tokens."""

LONGEST_LINE = 10
"""So many tokens are made one with the other at most: they end together."""


def in_order(scopes: frozenset[TokenScope]) -> list[TokenScope]:
    """As they are written everywhere."""
    return [scope for scope in TokenScope if scope in scopes]


@dataclass(frozen=True, slots=True)
class TokenReach:
    """What a token may do, until when (None: without end), and how many were made in a line before it.

    `budget` is its own, or that of the nearest before it.
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
        """The reach of a token that is made with this one: the scopes that are asked for, or else all that it has.

        `expires_in` None: it is to last without end. No token lasts for more than `longest` (None: there is no bound).
        Raises ForbiddenError where more is asked for than there is.
        """
        if self.generation >= LONGEST_LINE:
            raise ForbiddenError(
                f"The token that you use is the {LONGEST_LINE}th in a line of tokens, each made with the one before it."
                " Make yours with an earlier one."
            )
        beyond = (scopes or frozenset()) - self.scopes
        if beyond:
            raise ForbiddenError(
                f"The token that you use does not have the scope {', '.join(in_order(beyond))}, so none that is made"
                f" with it gets it. Ask for some of: {', '.join(in_order(self.scopes))}."
            )
        expires_at = None if expires_in is None else now + expires_in
        if longest is not None and (expires_in is None or expires_in > longest):
            raise ForbiddenError(
                f"Tokens of this server work for at most {_in_words(longest)}. Give an `expires_in` that is no longer."
            )
        if self.expires_at is not None and (expires_at is None or expires_at > self.expires_at):
            raise ForbiddenError(
                f"The token that you use ends at {self.expires_at:%Y-%m-%d %H:%M:%S} UTC, and none that is made with it"
                " lasts longer. Give an `expires_in` that ends sooner, or sign in with a token that lasts longer."
            )
        return TokenReach(scopes or self.scopes, expires_at, self.generation + 1)


def _in_words(time: timedelta) -> str:
    days, seconds = time.days, time.seconds
    return f"{days} days" if days and not seconds else f"{time.total_seconds() / 3600:g} hours"
