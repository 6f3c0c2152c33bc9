"""What jobs, bookings and maintenance windows are at, the same on pages and on the command line."""

from collections.abc import Iterable
from datetime import datetime

_BOOKING_STATUSES = {
    "waiting": "on the waitlist",
    "offered": "offered to you",
    "confirmed": "booked",
    "active": "now",
    "ended": "over",
    "released": "released unused",
    "expired": "nothing came free",
}
_NODES_LACK = frozenset({"larger_than_any_node", "not_enough_nodes"})
_WINDOW_STATUSES = {"confirmed": "planned", "active": "open", "ended": "over"}


def booking_status(status: str, *, mine: bool = True) -> str:
    """A booking's status in words, to its owner or (`mine` false) to others."""
    return "offered" if status == "offered" and not mine else _BOOKING_STATUSES.get(status, str(status))


def window_status(status: str) -> str:
    """A maintenance window's status in words."""
    return _WINDOW_STATUSES.get(status, str(status))


def subject_status(subject: str | None, status: str) -> str:
    """The status of a job, a booking or a maintenance window in words, by the id that it is about."""
    match (subject or "").partition("-")[0]:
        case "bkg":
            return booking_status(status, mine=False)
        case "mnt":
            return window_status(status)
        case _:
            return status


def queue_words(gpu_type: str | None, booking_id: str | None = None, gpus: int = 1) -> str:
    """The queue that a place counts in: jobs that ask for the same type or for no GPU, or run in the same booking."""
    if gpus == 0:
        return "the queue of jobs without GPUs"
    return f"the queue of {booking_id}" if booking_id else f"the queue for {gpu_type or 'any type'}"


def cannot_start(reason_codes: Iterable[str]) -> bool:
    """Whether a job with these reasons, and no other, can't start on the nodes that are here: it waits for others."""
    codes = set(reason_codes)
    return bool(codes) and codes <= _NODES_LACK


def promise_stands(promised: datetime | None, starts: datetime | None) -> bool:
    """Whether a waiting job will start by its promised start: not where nodes that it needs were taken away."""
    return promised is not None and starts is not None and starts <= promised
