"""Removal of old history, a bounded part at a time."""

from dataclasses import dataclass
from datetime import datetime

Place = tuple[datetime, str]
"""A position in the history of reservations, by their end and id."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One part: how many were removed, and where the next part begins; None: at the oldest again."""

    count: int
    goes_on_after: Place | None = None


@dataclass(frozen=True, slots=True)
class RowRemoval:
    """The same for rows of the ledger, by number."""

    count: int
    goes_on_after: int | None = None


class LockTimeoutError(Exception):
    """A table is in use for longer than others may wait, or not chained yet. Nothing was done; try again."""
