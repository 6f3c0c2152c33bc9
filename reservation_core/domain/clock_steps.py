"""What a difference between two clocks means: the ledger's, as the database tells it, and the one a process counts.

A process counts seconds since its machine's boot, which nobody sets. So a difference is a step of the database's clock,
or an inexact measurement, or the time for which the process's machine stood still.
"""

from datetime import timedelta
from enum import StrEnum

STEP = timedelta(seconds=1)
"""From here on a difference is a step. The SQL function `ledger_time` has the same bound."""

HELD_AT_MOST = timedelta(minutes=10)
"""A step that leaves the ledger's time farther from the clock's is not made up for: bookings would be too far off."""

PATIENCE = timedelta(seconds=20)
"""A process without the lease adopts a step after this time: a new leader would have corrected it by then."""

PATIENCE_AFTER_RECORD = timedelta(seconds=3)
"""The same where a step was recorded meanwhile: the leader makes up for a further one sooner than that."""

LONGEST_QUESTION = timedelta(seconds=0.5)
"""A question that took longer says too little of when it was answered."""

LONGEST_LEASE = timedelta(minutes=1)
"""A planner's lease that ends later was written by another time."""


class StepVerdict(StrEnum):
    """What to do about a difference."""

    IGNORE = "ignore"
    """It is within what the measurement leaves open."""
    ADOPT = "adopt"
    """Go by the database's time from now on."""
    COUNT_ON = "count_on"
    """Go by the own count: the leader is about to make up for a step."""
    MAKE_UP = "make_up"
    """Make up for the step: this is the leader."""


def verdict(off: timedelta, took: timedelta, pending: timedelta, *, leads: bool, recorded: bool) -> StepVerdict:
    """Judge a difference of `off` (what the database's time is ahead), measured by a question that took `took`.

    `pending` is for how long such differences have been measured without a break or a record of a step. `recorded` says
    that another process has recorded one since this process went by the database's time. Then the difference is a
    mistake of this process, which may have begun, or was told the time, between the step and its record.
    """
    if abs(off) <= took / 2 or took > LONGEST_QUESTION:
        return StepVerdict.IGNORE
    if abs(off) < STEP:
        return StepVerdict.ADOPT
    if leads:
        return StepVerdict.ADOPT if recorded else StepVerdict.MAKE_UP
    return StepVerdict.ADOPT if pending >= (PATIENCE_AFTER_RECORD if recorded else PATIENCE) else StepVerdict.COUNT_ON
