"""What must be true of a calendar: at every moment, and of what was used when all is over.

Looked at card by card, without the database's own guards and sums.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

Rows = Callable[..., Awaitable[list[dict[str, Any]]]]

_LEDGER = """
SELECT a.gpu_id, a.reservation_id, a.booking_id, a.held, a.planned, a.attempt, a.released_at, r.kind, r.user_id,
       lower(a.during) AS starts_at, upper(a.during) AS ends_at
FROM allocations a JOIN reservations r ON r.id = a.reservation_id ORDER BY a.gpu_id, lower(a.during)
"""
_HELD = """
SELECT a.gpu_id, a.reservation_id, a.booking_id, a.attempt = r.attempt AS last, r.kind, r.started_at, g.gpu_type,
       u.name AS user_name, r.project, lower(a.during) AS starts_at, upper(a.during) AS ends_at
FROM allocations a JOIN reservations r ON r.id = a.reservation_id JOIN users u ON u.id = r.user_id
JOIN gpus g ON g.id = a.gpu_id
WHERE NOT a.planned AND r.kind <> 'maintenance'
"""
_BOOKINGS = """
SELECT r.id, r.user_id, r.status, r.gpus * r.nodes AS cards, b.starts_at, b.ends_at
FROM bookings b JOIN reservations r ON r.id = b.id
"""
_LATE = """
SELECT p.reservation_id, p.promised_start_at, r.started_at FROM start_promises p
JOIN reservations r ON r.id = p.reservation_id WHERE r.started_at IS NOT NULL
"""
# From a card's being given to a job until its process runs, on a machine that has much else to do.
_STARTS_WITHIN = timedelta(minutes=1)


async def assert_in_order(rows: Rows) -> None:
    """Nobody is double-booked, who booked has what was booked, and who was promised a start had it by then."""
    ledger, bookings = await rows(_LEDGER), await rows(_BOOKINGS)
    _one_at_a_time([row for row in ledger if row["booking_id"] is None])
    _one_at_a_time([row for row in ledger if row["booking_id"] is not None])
    held = [row["gpu_id"] for row in ledger if row["held"]]
    assert len(held) == len(set(held)), held
    _within(ledger)
    _whole(ledger, bookings)
    for row in await rows(_LATE):
        assert row["started_at"] <= row["promised_start_at"] + _STARTS_WITHIN, row


def _one_at_a_time(ledger: list[dict[str, Any]]) -> None:
    """`ledger` is ordered by card and start."""
    for before, after in pairwise(ledger):
        assert before["gpu_id"] != after["gpu_id"] or before["ends_at"] <= after["starts_at"], (before, after)


def _within(ledger: list[dict[str, Any]]) -> None:
    """What lies within a booking lies on its cards, in its time, and is its owner's."""
    for row in ledger:
        if row["booking_id"] is not None:
            assert any(
                whole["reservation_id"] == row["booking_id"]
                and (whole["gpu_id"], whole["user_id"]) == (row["gpu_id"], row["user_id"])
                and whole["starts_at"] <= row["starts_at"]
                and row["ends_at"] <= whole["ends_at"]
                for whole in ledger
            ), row


def _whole(ledger: list[dict[str, Any]], bookings: list[dict[str, Any]]) -> None:
    """A booking has all its cards for all its time from when it is offered or confirmed, and none while it waits."""
    cards: dict[str, dict[int, tuple[datetime, datetime]]] = defaultdict(dict)
    for row in ledger:
        if row["kind"] == "booking" and row["released_at"] is None:
            cards[row["reservation_id"]][row["gpu_id"]] = (row["starts_at"], row["ends_at"])
    for booking in bookings:
        has = cards[booking["id"]]
        if booking["status"] in ("offered", "confirmed", "active"):
            assert len(has) == booking["cards"], booking
            assert set(has.values()) == {(booking["starts_at"], booking["ends_at"])}, (booking, has)
        else:
            assert not has, booking


@dataclass
class Used:
    """GPU-time of somebody, of a project or of a type."""

    held: timedelta = timedelta(0)
    used: timedelta = timedelta(0)
    wasted: timedelta = timedelta(0)


async def usage(rows: Rows, by: str) -> dict[str | None, Used]:
    """What the ledger says, when all is over, of each `user_name`, `project` or `gpu_type`."""
    ledger = await rows(_HELD)
    within = defaultdict(list)
    for row in ledger:
        if row["booking_id"] is not None and row["last"] and row["started_at"] is not None:
            within[row["booking_id"]].append(row)
    sums: dict[str | None, Used] = defaultdict(Used)
    for row in ledger:
        if row["booking_id"] is None:
            ran = within[row["reservation_id"]] if row["kind"] == "booking" else [row] if row["last"] else []
            sums[row[by]] = _with(sums[row[by]], row, [job for job in ran if job["started_at"] is not None])
    return dict(sums)


def _with(so_far: Used, row: dict[str, Any], ran: list[dict[str, Any]]) -> Used:
    """`ran`: what ran in it, on whichever card."""
    held = row["ends_at"] - row["starts_at"]
    used = [job["ends_at"] - max(job["starts_at"], job["started_at"]) for job in ran if job["gpu_id"] == row["gpu_id"]]
    in_use = sum((max(duration, timedelta(0)) for duration in used), timedelta(0))
    return Used(so_far.held + held, so_far.used + in_use, so_far.wasted + (timedelta(0) if ran else held))
