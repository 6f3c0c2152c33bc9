"""Times for people, in the zone of their machine: `Thu 26 Nov 2026 14:20 CET`."""

from datetime import datetime

from reservation_core.domain.time_words import range_words, time_words, with_time_words


def local_time(moment: datetime | None) -> str:
    """A time in the reader's zone, to the second; empty for None."""
    return "" if moment is None else time_words(moment, None, seconds=True)


def minute(moment: datetime | None) -> str:
    """A time in the reader's zone, to the minute; empty for None."""
    return "" if moment is None else time_words(moment, None)


def slot_words(start: datetime, end: datetime) -> str:
    """`Thu 26 Nov 2026 14:20 to 15:20 CET`."""
    return range_words(start, end, None)


def wall_words(text: str) -> str:
    """A local time of a zone that is known (`2026-11-26T14:20`), without the zone: `Thu 26 Nov 2026 14:20`."""
    local = datetime.fromisoformat(text)
    return f"{local:%a} {local.day} {local:%b %Y %H:%M}"


def local_sentence(text: str) -> str:
    """A sentence of the server with its times, which are in UTC, in the reader's zone."""
    return with_time_words(text, minute, slot_words)
