"""What a difference between two clocks means: the database's, and a process's count of seconds.

A process counts seconds since its machine's boot, which nobody sets. So a difference is a step of the database's clock,
an inexact measurement, or a time in which the process's machine stood still.
"""

from datetime import timedelta
from enum import StrEnum

STEP = timedelta(seconds=1)
"""The least difference that counts as a step. The SQL function `ledger_time` has the same bound."""

HELD_AT_MOST = timedelta(minutes=10)
"""A step that puts the ledger's time further from the clock is not corrected: bookings would be too far off."""

PATIENCE = timedelta(seconds=20)
"""When a process without the lease adopts a step: by then whoever may correct it would have done so."""

PATIENCE_AFTER_RECORD = timedelta(seconds=3)
"""The same after a recorded step: the leader corrects a further one sooner."""

LONGEST_QUESTION = timedelta(seconds=0.5)
"""A slower query says too little about when it was answered."""

LONGEST_LEASE = timedelta(minutes=1)
"""A planner's lease that ends later was written before a step."""


class StepVerdict(StrEnum):
    """The action for a difference."""

    IGNORE = "ignore"
    """The difference is within the precision of the measurement."""
    ADOPT = "adopt"
    """Use the database's time from now on."""
    COUNT_ON = "count_on"
    """Use the process's own count: the step is being recorded."""
    MAKE_UP = "make_up"
    """Correct the step, if this process may: the leader may, and while nobody holds the lease any process."""


def verdict(
    off: timedelta, took: timedelta, pending: timedelta, *, leads: bool, recorded: bool, behind: bool = False
) -> StepVerdict:
    """Judge a difference of `off` (how far the database's time is ahead), measured by a query that took `took`.

    `pending` is how long such differences were measured without a break or a recorded step. `recorded`: another process
    has recorded a step since this one used the database's time. Then the mistake is this process's, which may have
    begun, or read the time, between the step and its record. Or its machine stood still: it is `behind`.
    """
    if abs(off) <= took / 2 or took > LONGEST_QUESTION:
        return StepVerdict.IGNORE
    if abs(off) < STEP:
        return StepVerdict.ADOPT
    if not recorded:
        if leads or (pending < PATIENCE and not behind):
            return StepVerdict.MAKE_UP
        return StepVerdict.ADOPT if pending >= PATIENCE else StepVerdict.COUNT_ON
    return StepVerdict.ADOPT if leads or pending >= PATIENCE_AFTER_RECORD else StepVerdict.COUNT_ON
