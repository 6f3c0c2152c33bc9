"""How long things are kept, and what is kept longer because something still reads it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

WEEKS_OF_QUOTAS = timedelta(days=15)
"""Quotas read the bookings of the current week, whatever is asked for; and a day more, for clocks differ."""

HALF_LIVES_KEPT = 10
"""When the half-life of fair shares changes, they are counted anew: what is older than these weighs a thousandth."""

EVENTS_READ = timedelta(days=7)
"""Notifications, metrics and open pages read the newest events; none of them is as late as that."""


class HistoryKind(StrEnum):
    """History that is removed when it is old."""

    EVENTS = "events"
    JOBS = "jobs"
    ALLOCATIONS = "allocations"
    POD_LOGS = "pod_logs"
    LOCAL_LOGS = "local_logs"
    DEAD_LETTERS = "dead_letters"
    IDEMPOTENCY = "idempotency"


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """How long each kind is kept after it is over; None: for ever. `jobs`: bookings and maintenance windows, too."""

    events: timedelta | None
    jobs: timedelta | None
    allocations: timedelta | None
    logs: timedelta | None
    dead_letters: timedelta | None
    idempotency: timedelta | None
    log_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StillNeeded:
    """What reads history, None where nothing does.

    It is the longest cooldown between bookings, and fair shares with their half-life, counted until a time.
    """

    cooldown: timedelta | None = None
    half_life: timedelta | None = None
    counted_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed of one kind so far. `kept_bytes` is None where nothing but the disk knows."""

    kind: HistoryKind
    count: int
    oldest_at: datetime | None
    kept_bytes: int | None
    looked_at: datetime


def older_than(now: datetime, keep: timedelta | None) -> datetime | None:
    """Before what time things are old; None: none ever is."""
    return None if keep is None else now - keep


def ledger_older_than(now: datetime, keep: timedelta | None, needed: StillNeeded) -> datetime | None:
    """The same for the ledger and its reservations, whose history quotas, cooldowns and fair shares read."""
    if keep is None:
        return None
    longest = max(keep, WEEKS_OF_QUOTAS + (needed.cooldown or timedelta(0)))
    if needed.half_life is not None:
        longest = max(longest, HALF_LIVES_KEPT * needed.half_life)
    before = now - longest
    if needed.counted_until is None or needed.half_life is None:
        return before
    # Shares that nobody has brought up for so long were switched off, and what they lack has decayed to nothing.
    given_up = needed.counted_until < now - 2 * HALF_LIVES_KEPT * needed.half_life
    return before if given_up else min(before, needed.counted_until)


def jobs_older_than(now: datetime, rules: RetentionRules, needed: StillNeeded) -> datetime | None:
    """The same for reservations: one stays as long as its rows of the ledger do."""
    jobs = ledger_older_than(now, rules.jobs, needed)
    allocations = ledger_older_than(now, rules.allocations, needed)
    return None if jobs is None or allocations is None else min(jobs, allocations)


def events_older_than(now: datetime, keep: timedelta | None, oldest_open: datetime | None) -> datetime | None:
    """The same for events: what is recorded of reservations that are not over is kept, whenever that was."""
    if keep is None:
        return None
    before = now - max(keep, EVENTS_READ)
    return before if oldest_open is None else min(before, oldest_open)
