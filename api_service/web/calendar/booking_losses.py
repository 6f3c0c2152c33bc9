"""Sentences on the losses of cancelled bookings."""

from collections.abc import Sequence

from reservation_core.contracts.base import rfc3339
from reservation_core.contracts.bookings import BookingOut
from reservation_core.contracts.jobs import Job

_NAMED = 8


def what_bookings_lose(dates: Sequence[BookingOut], jobs: Sequence[Job]) -> list[str]:
    """The GPUs and times, and the jobs that end with them."""
    lost = [f"{what_goes_back(dates)} Others can book this time at once."]
    if jobs:
        named = ", ".join(f"{job.name or job.id} ({job.status})" for job in jobs[:_NAMED])
        if len(jobs) > _NAMED:
            named += f" and {len(jobs) - _NAMED} more"
        lost.append(f"{'This job ends' if len(jobs) == 1 else 'These jobs end'} with it: {named}.")
    return lost


def what_goes_back(dates: Sequence[BookingOut]) -> str:
    """`You lose 2 h100 GPUs from … to ….`, or the number of dates with the first and the last."""
    first, last = dates[0], dates[-1]
    count = first.gpus * first.nodes
    gpus = f"{count} {first.gpu_type or ''} {'GPU' if count == 1 else 'GPUs'}".replace("  ", " ")
    if len(dates) == 1:
        return f"You lose {gpus} from {rfc3339(first.start)} to {rfc3339(first.end)}."
    dated = f"the first at {rfc3339(first.start)}, the last at {rfc3339(last.start)}"
    return f"You lose {gpus} at {len(dates)} dates, {dated}."
