"""Removing what is old, a bounded part at a time."""

from dataclasses import dataclass
from datetime import datetime

Place = tuple[datetime, str]
"""Where in the history of reservations, by the time they ended and id."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One part: how many were removed, and after what the next part begins; None: at the oldest again."""

    count: int
    goes_on_after: Place | None = None


@dataclass(frozen=True, slots=True)
class RowRemoval:
    """The same for rows of the ledger, which are numbered."""

    count: int
    goes_on_after: int | None = None


class LockNotHadError(Exception):
    """A table is in use for longer than others may be kept waiting, or not chained yet. Nothing was done; try again."""
