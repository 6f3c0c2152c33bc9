"""Times as people read them (`Thu 26 Nov 2026 14:20 CET`), everywhere the same, and as REST messages have them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

_INSTANT = r"(?<!such as )(?<![=/&])\b(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?Z)"
_INSTANTS = re.compile(f"{_INSTANT}(?: to {_INSTANT})?")
_LISTED = r"\d{4}-\d\d-\d\dT\d\d:\d\dZ?"
_LONG_LIST = re.compile(rf"({_LISTED}(?:, {_LISTED}){{9}})((?:, {_LISTED})+)")


def time_words(when: datetime, zone: tzinfo | None, *, seconds: bool = False) -> str:
    """A time with its day and zone; `zone` None is this machine's."""
    local = when.astimezone(zone)
    clock = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
    return f"{local:%a} {local.day} {local:%b %Y} {clock} {zone_words(local)}"


def range_words(start: datetime, end: datetime, zone: tzinfo | None) -> str:
    """`Thu 26 Nov 2026 14:20 to 15:20 CET`: the day of the end and the zone of the start only where they differ."""
    begin, until = start.astimezone(zone), end.astimezone(zone)
    first, last = time_words(start, zone), time_words(end, zone)
    if zone_words(begin) == zone_words(until):
        first = first.removesuffix(f" {zone_words(begin)}")
        last = f"{until:%H:%M} {zone_words(until)}" if begin.date() == until.date() else last
    return f"{first} to {last}"


def zone_words(local: datetime) -> str:
    """The abbreviation of a local time's zone (`CET`), else its offset (`UTC+05:30`)."""
    name = local.tzname() or ""
    if name[:1].isalpha():
        return name
    offset = f"{local:%z}"
    return f"UTC{offset[:3]}:{offset[3:5]}" if offset else "UTC"


def with_time_words(
    text: str, write: Callable[[datetime], str], write_range: Callable[[datetime, datetime], str]
) -> str:
    """A sentence of the server, whose times (RFC 3339, in UTC) are written by `write`, `A to B` by `write_range`.

    Of a list of more than ten times it shows ten.
    """

    def written(found: re.Match[str]) -> str:
        try:
            start = datetime.fromisoformat(found[1])
            return write(start) if found[2] is None else write_range(start, datetime.fromisoformat(found[2]))
        except (ValueError, OverflowError):  # only looks like a time
            return found[0]

    shown = _LONG_LIST.sub(lambda found: f"{found[1]} and {found[2].count(',')} more", text)
    return _INSTANTS.sub(written, shown)


def rfc3339(value: datetime) -> str:
    """A time in REST messages, to the millisecond."""
    at = value if value.tzinfo is UTC else value.astimezone(UTC)
    return f"{at.isoformat(timespec='milliseconds')[:-6]}Z"
