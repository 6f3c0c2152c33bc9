"""What keeps the ledger true, by name: no GPU twice, and no more CPUs and memory than there are."""

from sqlalchemy.exc import IntegrityError

CALENDAR_CONSTRAINT = "allocations_calendar"
HOLD_CONSTRAINT = "allocations_hold"
LEDGER_CONSTRAINTS = (
    CALENDAR_CONSTRAINT,
    HOLD_CONSTRAINT,
    "allocations_calendar_in_bookings",
    "allocations_within_booking",
    "allocations_cover_what_is_within",
    "allocations_shares",
    "allocations_cpu_calendar",
    "allocations_cpu_hold",
    "allocations_follow",
)


def violates(error: IntegrityError, *constraints: str) -> bool:
    """Whether the database refused because of one of these constraints."""
    # What a trigger raises names its constraint only in a field of its own.
    causes = [error.orig, getattr(error.orig, "__cause__", None)]
    named = {getattr(cause, "constraint_name", None) for cause in causes}
    return any(name in named or name in str(error.orig) for name in constraints)
