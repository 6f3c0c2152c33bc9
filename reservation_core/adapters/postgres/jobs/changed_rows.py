"""The rows of decided changes, as `update_reservations` takes them."""

from collections.abc import Sequence
from typing import Any

from reservation_core.adapters.postgres.rows import seconds
from reservation_core.domain.changes import DecidedChange


def changed_rows(changes: Sequence[DecidedChange]) -> dict[str, Any]:
    """A column for each value of the rows after the changes."""
    rows = [change.after for change in changes]
    return {
        "ids": [r.id for r in rows],
        "versions": [change.before.version for change in changes],
        "statuses": [r.status.value for r in rows],
        "reason_codes": [r.reason.code.value for r in rows],
        "reasons": [r.reason.detail for r in rows],
        "durations": [seconds(r.duration) for r in rows],
        "outcomes": [None if r.outcome is None else r.outcome.value for r in rows],
        "range_ends": [r.range_end for r in rows],
        "started_ats": [r.started_at for r in rows],
        "ends_ats": [r.ends_at for r in rows],
        "finished_ats": [r.finished_at for r in rows],
        "exit_codes": [r.exit_code for r in rows],
        "warned": [r.warned_s for r in rows],
        "attempts": [r.attempt for r in rows],
        "helds": [r.held for r in rows],
        "retried": [r.retried for r in rows],
        "idle_sinces": [None if r.idle is None else r.idle.since for r in rows],
        "idle_warned_ats": [None if r.idle is None else r.idle.warned_at for r in rows],
        "idle_release_ats": [None if r.idle is None else r.idle.release_at for r in rows],
        "idle_froms": [r.idle_from for r in rows],
        "signalled_ats": [r.preemption.signalled_at for r in rows],
        "preempted_ats": [r.preemption.asked_at for r in rows],
        "preemptions": [r.preemption.times for r in rows],
        "now": changes[0].at,
    }
