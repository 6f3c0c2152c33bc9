"""How long history is kept, and what is kept longer because it is still read."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

WEEKS_OF_QUOTAS = timedelta(days=15)
"""Quotas always read the bookings of the current week; plus a day for clock differences."""

HALF_LIVES_KEPT = 10
"""When the half-life of fair shares changes, they are recounted; older use weighs less than a thousandth."""

EVENTS_READ = timedelta(days=7)
"""Notifications, metrics and open pages read the newest events, and none lags behind by this much."""


class HistoryKind(StrEnum):
    """A kind of history that is removed when it is old."""

    EVENTS = "events"
    JOBS = "jobs"
    ALLOCATIONS = "allocations"
    POD_LOGS = "pod_logs"
    LOCAL_LOGS = "local_logs"
    DEAD_LETTERS = "dead_letters"
    IDEMPOTENCY = "idempotency"


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """How long each kind is kept after it ends; None: for ever. `jobs` includes bookings and maintenance windows.

    `files`: what users send for their jobs, and what jobs keep, after its last use.
    """

    events: timedelta | None
    jobs: timedelta | None
    allocations: timedelta | None
    logs: timedelta | None
    dead_letters: timedelta | None
    idempotency: timedelta | None
    log_bytes: int | None = None
    files: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class HistoryReaders:
    """Readers of old history; None where there are none.

    The longest cooldown between bookings, and fair shares with their half-life, counted until a time.
    """

    cooldown: timedelta | None = None
    half_life: timedelta | None = None
    counted_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """The removals of one kind so far. `kept_bytes` is known of local logs only."""

    kind: HistoryKind
    count: int
    oldest_at: datetime | None
    kept_bytes: int | None
    looked_at: datetime


def older_than(now: datetime, keep: timedelta | None) -> datetime | None:
    """The time before which history is old; None: never."""
    return None if keep is None else now - keep


def ledger_older_than(now: datetime, keep: timedelta | None, needed: HistoryReaders) -> datetime | None:
    """The same for the ledger and its reservations, which quotas, cooldowns and fair shares read."""
    if keep is None:
        return None
    longest = max(keep, WEEKS_OF_QUOTAS + (needed.cooldown or timedelta(0)))
    if needed.half_life is not None:
        longest = max(longest, HALF_LIVES_KEPT * needed.half_life)
    before = now - longest
    if needed.counted_until is None or needed.half_life is None:
        return before
    # Shares that were not updated for so long are switched off, and their missing part has decayed.
    given_up = needed.counted_until < now - 2 * HALF_LIVES_KEPT * needed.half_life
    return before if given_up else min(before, needed.counted_until)


def jobs_older_than(now: datetime, rules: RetentionRules, needed: HistoryReaders) -> datetime | None:
    """The same for reservations: one stays as long as its rows in the ledger."""
    jobs = ledger_older_than(now, rules.jobs, needed)
    allocations = ledger_older_than(now, rules.allocations, needed)
    return None if jobs is None or allocations is None else min(jobs, allocations)


def events_older_than(now: datetime, keep: timedelta | None, oldest_open: datetime | None) -> datetime | None:
    """The same for events: those of unfinished reservations are kept, however old."""
    if keep is None:
        return None
    before = now - max(keep, EVENTS_READ)
    return before if oldest_open is None else min(before, oldest_open)
