"""Budgets of tokens: how much GPU time may be asked for with a token, and with those that were made with it.

Amounts are GPUs times microseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from reservation_core.domain.calendar import length_micros
from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.policy.rule_words import said_moment
from reservation_core.domain.policy.rules import RuleBreach

MICROS_AN_HOUR = 3_600_000_000
MOST_HOURS = 1e9
FARTHEST_UNTIL = timedelta(days=3660)

SPENT = "token_budget"
OVER = "token_budget_over"


@dataclass(frozen=True, slots=True)
class Budget:
    """So much GPU time until then (None: for as long as the token works), and how much of it is charged."""

    token_id: str
    gpu_us: int
    until: datetime | None
    charged_us: int = 0

    @property
    def left_us(self) -> int:
        """What may still be asked for."""
        return self.gpu_us - self.charged_us


class Ask(NamedTuple):
    """The part [start, end) of a reservation's GPU time, counted from its beginning, that is asked for now."""

    reservation_id: str
    start_us: int
    end_us: int


def ask_for(reservation_id: str, gpus: int, duration: timedelta, before: timedelta = timedelta(0)) -> Ask:
    """What it takes to have `gpus` in all for `duration`, where they were asked for `before` already."""
    return Ask(reservation_id, gpus * length_micros(before), gpus * length_micros(duration))


def refused(line: Sequence[Budget], asked_us: int, now: datetime) -> RuleBreach | None:
    """Why a line of budgets, from the first token's to the last's, does not pay for this; None where all do."""
    for budget in line:
        if budget.until is not None and now >= budget.until:
            return RuleBreach(
                OVER,
                f"The budget of token {budget.token_id} ended at {said_moment(budget.until)}: nothing more can be"
                " submitted, booked or extended with it. Use another token, or ask whoever made this one for another.",
            )
        if asked_us > budget.left_us:
            until = "" if budget.until is None else f" until {said_moment(budget.until)}"
            return RuleBreach(
                SPENT,
                f"This asks for {_more(asked_us)} GPU-hours, and the budget of token {budget.token_id} has"
                f" {_less(budget.left_us)} of {_less(budget.gpu_us)} left{until}. Ask for fewer GPUs or less time, end"
                " what you do not need any more, or use another token.",
            )
    return None


def passed_on(maker: Budget | None, token_id: str, hours: float, until: datetime | None, now: datetime) -> Budget:
    """The budget of a token that is made with one whose budget is `maker`; without `until` it ends with that.

    Raises ForbiddenError where it would be more than there is, or end in the past or too far ahead.
    """
    if until is None and maker is not None:
        until = maker.until
    if until is not None and not now < until <= now + FARTHEST_UNTIL:
        raise ForbiddenError(
            f"`budget.until` is {said_moment(until)}: it must be in the future, and at most {FARTHEST_UNTIL.days} days"
            " from now. Give another time, or leave it out."
        )
    budget = Budget(token_id, max(1, round(hours * MICROS_AN_HOUR)), until)
    if maker is None:
        return budget
    later = maker.until is not None and (until is None or until > maker.until)
    if later or budget.gpu_us > maker.gpu_us:
        end = "" if maker.until is None else f" until {said_moment(maker.until)}"
        raise ForbiddenError(
            f"The token that you use has a budget of {_less(maker.gpu_us)} GPU-hours{end}, and none that is made with"
            " it gets more. Ask for as much or less."
        )
    return budget


def _less(gpu_us: int) -> str:
    """Hours to the hundredth, never more than there are."""
    return f"{gpu_us * 100 // MICROS_AN_HOUR / 100:.2f}".rstrip("0").rstrip(".")


def _more(gpu_us: int) -> str:
    """Hours to the hundredth, never fewer than there are."""
    return f"{-(-gpu_us * 100 // MICROS_AN_HOUR) / 100:.2f}".rstrip("0").rstrip(".")
