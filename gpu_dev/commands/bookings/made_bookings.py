"""What `book` shows of a booking or a series that was made or changed, or would be."""

from gpu_dev.client import GpuDevClient
from gpu_dev.display.amounts import resource_words
from gpu_dev.display.calendar_views import BOOKING, BOOKING_DETAILS, VERDICT, booked_on, costs_in_words
from gpu_dev.display.local_times import local_sentence, slot_words, wall_words
from gpu_dev.display.output import Column, Format, View, as_data, show_list, show_one, with_facts
from gpu_dev.display.views import wanted_gpus
from gpu_dev.errors import ClientError
from gpu_dev.terminal import put, say
from gpu_dev.wire.bookings import BookingOut, BookingSeries, BookingVerdict, SeriesVerdict
from reservation_core.domain.jobs.workload_words import workload_words
from reservation_core.domain.notices.reach import kind_at_turn, why_not_notified
from reservation_core.domain.status_words import booking_status
from reservation_core.domain.statuses import BookingStatus

_DATA = (Format.JSON, Format.YAML)
_SERIES = View[BookingSeries](
    name=lambda series: series.series_id, columns=(Column("SERIES", lambda series: series.series_id),)
)


def show_made(made: BookingOut | BookingVerdict | BookingSeries | SeriesVerdict, output: Format | None) -> None:
    """Show a booking, a series, or what would become of one."""
    if isinstance(made, BookingSeries | SeriesVerdict):
        _show_series(made, output)
    else:
        show_booking(made, output)


def show_booking(booking: BookingOut | BookingVerdict, output: Format | None) -> None:
    """Show a booking, or what would become of one; in a sentence without a format."""
    if output is None:
        put(f"{_in_words(booking)}\n")
    elif isinstance(booking, BookingVerdict):
        put(show_one(booking, VERDICT, output))
    else:
        put(show_one(booking, with_facts(BOOKING_DETAILS, workload_words(booking.workload)), output))


def _show_series(made: BookingSeries | SeriesVerdict, output: Format | None) -> None:
    if output is not None and isinstance(made, SeriesVerdict):
        more = {"skipped": as_data(made.skipped), "costs": as_data(made.costs)}
        put(show_list(made.items, VERDICT, output, **more))
    elif output is not None and isinstance(made, BookingSeries):
        put(show_one(made, _SERIES, output) if output in _DATA else show_list(made.items, BOOKING, output))
    else:
        dates = f"{len(made.items)} {'date' if len(made.items) == 1 else 'dates'}"
        put(f"would be: {dates}\n" if isinstance(made, SeriesVerdict) else f"{made.series_id}: {dates} booked\n")
        for one in made.items:
            put(f"{_in_words(one)}\n")
        if isinstance(made, SeriesVerdict) and made.costs:
            put(f"together: about {costs_in_words(made.costs)}\n")
    for left_out in made.skipped:
        reasons = "; ".join(local_sentence(rule.detail) for rule in left_out.broken_rules)
        say(f"{wall_words(left_out.local_start)} left out: {reasons}")


def say_if_notified(client: GpuDevClient, booking: BookingOut) -> None:
    """Say of a booking of one's own on the waitlist whether a notification comes at its turn, if the token may ask."""
    if booking.status is not BookingStatus.WAITING:
        return
    try:
        if booking.user != client.me().name:
            return
        preferences = client.notices.preferences()
        targets = [(target.channel, target.status) for target in client.notices.targets(user=booking.user)]
    except ClientError:  # the booking itself was made, or read
        return
    chosen = preferences.kinds.get(kind_at_turn(auto_accept=booking.auto_accept), [])
    why_not = why_not_notified(chosen, preferences.unavailable, targets)
    if why_not is None:
        say("You are notified when its GPUs become free.")
    else:
        say(f"{why_not} Add one: gpu-dev notify add -h. To look yourself: gpu-dev book waitlist")


def _in_words(booking: BookingOut | BookingVerdict) -> str:
    cards = wanted_gpus(booking.gpus, booking.gpu_type, booking.nodes)
    where = f" on {booked_on(booking)}" if booking.allocations else ""
    what = "would be" if isinstance(booking, BookingVerdict) else booking.id
    cost = booking.cost if isinstance(booking, BookingVerdict) else None
    price = "" if cost is None else f", about {costs_in_words([cost])}"
    share = resource_words(booking.resources) if isinstance(booking, BookingVerdict) else ""
    amounts = f", {share}{' on each node' if booking.nodes > 1 else ''}" if share else ""
    times = slot_words(booking.start, booking.end)
    return f"{what} {booking_status(booking.status)}: {cards}{where}, {times}{amounts}{price}"
