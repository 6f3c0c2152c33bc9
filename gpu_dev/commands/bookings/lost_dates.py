"""The question before dates of a series are cancelled."""

from collections.abc import Sequence
from itertools import islice

from gpu_dev.calls.booking_calls import Reach
from gpu_dev.client import GpuDevClient
from gpu_dev.display.local_times import minute
from gpu_dev.inputs.ids import SEARCHED
from gpu_dev.session import OPEN_BOOKINGS
from gpu_dev.wire.bookings import BookingOut
from reservation_core.domain.policy.rule_words import counted


def dates_lost(client: GpuDevClient, chosen: Sequence[str], reach: Reach) -> str:
    """The question, with the number of dates and when they are."""
    lost = list[BookingOut]()
    for booking_id in chosen:
        first = client.bookings.get(booking_id)
        if first.series_id is None:
            lost.append(first)
            continue
        dates = islice(client.bookings.calendar(statuses=OPEN_BOOKINGS, user=first.user), SEARCHED)
        lost += [
            one for one in dates if one.series_id == first.series_id and (reach == "all" or one.start >= first.start)
        ]
    lost = sorted({one.id: one for one in lost}.values(), key=lambda one: one.start)
    if not lost:
        return f"Cancel {', '.join(chosen)}?"
    when = f"from {minute(lost[0].start)}" if len(lost) == 1 else f"{minute(lost[0].start)} to {minute(lost[-1].start)}"
    titles = ", ".join(dict.fromkeys(one.title for one in lost if one.title))
    title = f" of {titles}" if titles else ""
    return f"Cancel {counted(len(lost), 'date')}{title}, {when}? Their GPUs are free at once, and jobs in them end."
