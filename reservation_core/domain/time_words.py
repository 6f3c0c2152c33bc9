"""Times as people read them: `Thu 26 Nov 2026 14:20 CET`, everywhere the same."""

import re
from collections.abc import Callable
from datetime import datetime, tzinfo

_INSTANT = re.compile(r"(?<!such as )\b\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?Z")


def time_words(when: datetime, zone: tzinfo | None, *, seconds: bool = False) -> str:
    """A time with its day and zone; `zone` None is this machine's."""
    local = when.astimezone(zone)
    clock = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
    return f"{local:%a} {local.day} {local:%b %Y} {clock} {zone_words(local)}"


def zone_words(local: datetime) -> str:
    """The abbreviation of a local time's zone (`CET`), else its offset (`UTC+05:30`)."""
    name = local.tzname() or ""
    if name[:1].isalpha():
        return name
    offset = f"{local:%z}"
    return f"UTC{offset[:3]}:{offset[3:5]}" if offset else "UTC"


def with_time_words(text: str, write: Callable[[datetime], str]) -> str:
    """A sentence of the server, whose times (RFC 3339, in UTC) are written by `write`."""

    def written(found: re.Match[str]) -> str:
        try:
            return write(datetime.fromisoformat(found[0]))
        except (ValueError, OverflowError):  # only looks like a time
            return found[0]

    return _INSTANT.sub(written, text)
