"""Budgets of tokens: how much GPU time may be requested with a token and the tokens made with it.

Amounts are GPUs times microseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from reservation_core.domain.calendar import length_micros
from reservation_core.domain.errors import ForbiddenError
from reservation_core.domain.policy.rule_words import moment_text
from reservation_core.domain.policy.rules import RuleBreach

MICROS_AN_HOUR = 3_600_000_000
MOST_HOURS = 1e9
FARTHEST_UNTIL = timedelta(days=3660)

SPENT = "token_budget"
OVER = "token_budget_over"


@dataclass(frozen=True, slots=True)
class Budget:
    """A GPU-time budget until `until` (None: as long as the token works), and the charged part."""

    token_id: str
    gpu_us: int
    until: datetime | None
    charged_us: int = 0

    @property
    def left_us(self) -> int:
        """The part that may still be requested."""
        return self.gpu_us - self.charged_us


class Ask(NamedTuple):
    """The part [start, end) of a reservation's GPU time, counted from its beginning, that is requested now."""

    reservation_id: str
    start_us: int
    end_us: int


def ask_for(reservation_id: str, gpus: int, duration: timedelta, before: timedelta = timedelta(0)) -> Ask:
    """Ask for `gpus` in all for `duration`, of which `before` was asked for already."""
    return Ask(reservation_id, gpus * length_micros(before), gpus * length_micros(duration))


def refused(line: Sequence[Budget], asked_us: int, now: datetime) -> RuleBreach | None:
    """Why a chain of budgets, from the first token's to the last's, does not cover this; None if all do."""
    for budget in line:
        if budget.until is not None and now >= budget.until:
            return RuleBreach(
                OVER,
                f"The budget of token {budget.token_id} ended at {moment_text(budget.until)}: nothing more can be"
                " submitted, booked or extended with it. Use another token, or ask its creator for another.",
            )
        if asked_us > budget.left_us:
            until = "" if budget.until is None else f" until {moment_text(budget.until)}"
            return RuleBreach(
                SPENT,
                f"This asks for {_round_up(asked_us)} GPU-hours, and the budget of token {budget.token_id} has"
                f" {_round_down(budget.left_us)} of {_round_down(budget.gpu_us)} left{until}. Ask for fewer GPUs or"
                " less time, cancel what you no longer need, or use another token.",
            )
    return None


def passed_on(maker: Budget | None, token_id: str, hours: float, until: datetime | None, now: datetime) -> Budget:
    """The budget of a token made with a token whose budget is `maker`; without `until` it ends with that.

    Raises ForbiddenError if it exceeds `maker`, or ends in the past or too far ahead.
    """
    if until is None and maker is not None:
        until = maker.until
    if until is not None and not now < until <= now + FARTHEST_UNTIL:
        raise ForbiddenError(
            f"`budget.until` is {moment_text(until)}: it must be in the future, and at most {FARTHEST_UNTIL.days} days"
            " from now. Give another time, or leave it out."
        )
    budget = Budget(token_id, max(1, round(hours * MICROS_AN_HOUR)), until)
    if maker is None:
        return budget
    later = maker.until is not None and (until is None or until > maker.until)
    if later or budget.gpu_us > maker.gpu_us:
        end = "" if maker.until is None else f" until {moment_text(maker.until)}"
        raise ForbiddenError(
            f"The token that you use has a budget of {_round_down(maker.gpu_us)} GPU-hours{end}, and none that is made"
            " with it gets more. Ask for as much or less."
        )
    return budget


def _round_down(gpu_us: int) -> str:
    """Hours to the hundredth, rounded down."""
    return f"{gpu_us * 100 // MICROS_AN_HOUR / 100:.2f}".rstrip("0").rstrip(".")


def _round_up(gpu_us: int) -> str:
    """Hours to the hundredth, rounded up."""
    return f"{-(-gpu_us * 100 // MICROS_AN_HOUR) / 100:.2f}".rstrip("0").rstrip(".")
