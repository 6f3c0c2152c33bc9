"""Sentences on the losses of cancelled bookings."""

from collections.abc import Sequence

from reservation_core.contracts.bookings import BookingOut
from reservation_core.contracts.jobs import Job
from reservation_core.domain.statuses import BookingStatus
from reservation_core.domain.time_words import rfc3339

_NAMED = 8


def what_bookings_lose(dates: Sequence[BookingOut], jobs: Sequence[Job], user: str) -> list[str]:
    """The GPUs and times, or the places on the waitlist, and the jobs that end with them; `user` is who asks."""
    held = [date for date in dates if date.status is not BookingStatus.WAITING]
    lost = [f"{what_goes_back(held, user)} Others can book this time at once."] if held else []
    if waiting := len(dates) - len(held):
        lost.append(
            "The place on the waitlist is lost." if waiting == 1 else f"{waiting} places on the waitlist are lost."
        )
    if jobs:
        named = ", ".join(f"{job.name or job.id} ({job.status})" for job in jobs[:_NAMED])
        if len(jobs) > _NAMED:
            named += f" and {len(jobs) - _NAMED} more"
        lost.append(f"{'This job ends' if len(jobs) == 1 else 'These jobs end'} with it: {named}.")
    return lost


def what_goes_back(dates: Sequence[BookingOut], user: str) -> str:
    """`You lose 2 h100 GPUs from … to ….`, or the number of dates with the first and the last."""
    first, last = dates[0], dates[-1]
    loses = "You lose" if first.user == user else f"{first.user} loses"
    count = first.gpus * first.nodes
    gpus = f"{count} {first.gpu_type or ''} {'GPU' if count == 1 else 'GPUs'}".replace("  ", " ")
    if len(dates) == 1:
        return f"{loses} {gpus} from {rfc3339(first.start)} to {rfc3339(first.end)}."
    dated = f"the first at {rfc3339(first.start)}, the last at {rfc3339(last.start)}"
    return f"{loses} {gpus} at {len(dates)} dates, {dated}."
