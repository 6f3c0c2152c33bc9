"""How things are written on pages: times, spans, sizes. Everything takes a zone or `now`; nothing asks the clock."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?Z")
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?")


def moment(value: datetime | str | None) -> datetime | None:
    """A time as REST writes it, as a time."""
    if value is None or isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value)


def clock(value: datetime | str | None, zone: ZoneInfo, now: datetime) -> str:
    """`14:30` today, `Tue 24 Nov 14:30` this year, else with the year."""
    when = moment(value)
    if when is None:
        return "–"
    local, today = when.astimezone(zone), now.astimezone(zone)
    if local.date() == today.date():
        return f"{local:%H:%M}"
    return f"{local:%a} {local.day} {local:%b %H:%M}" if local.year == today.year else f"{local:%Y-%m-%d %H:%M}"


def in_zone(text: str, zone: ZoneInfo, now: datetime) -> str:
    """A sentence of the server's with its times, which are in UTC, as `clock` writes them."""

    def read(found: re.Match[str]) -> str:
        try:
            return clock(found[0], zone, now)
        except ValueError:  # looks like a time, and is none
            return found[0]

    return _TIME.sub(read, text)


def full_clock(value: datetime | str | None, zone: ZoneInfo) -> str:
    """With date, seconds and zone."""
    when = moment(value)
    return "–" if when is None else f"{when.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def span(value: timedelta | str | float | None) -> str:
    """`2 d 3 h`, `45 min`, `20 s`: the two largest parts. Takes seconds and ISO 8601 durations, too."""
    if value is None:
        return "–"
    seconds = int(_seconds(value))
    if seconds < 60:
        return f"{seconds} s"
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    parts = [f"{amount} {unit}" for amount, unit in ((days, "d"), (hours, "h"), (rest // 60, "min")) if amount]
    return " ".join(parts[:2])


def until(value: datetime | str | None, now: datetime) -> str:
    """`in 2 h 5 min`, or `5 min ago`."""
    when = moment(value)
    if when is None:
        return "–"
    left = when - now
    return f"in {span(left)}" if left >= timedelta(0) else f"{span(-left)} ago"


def hours(value: float) -> str:
    """GPU-hours, as exact as somebody would read them."""
    if value == 0:
        return "0"
    if value < 0.01:
        return "< 0.01"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def gib(value: int | None) -> str:
    """Bytes in GiB."""
    return "–" if value is None else f"{value / 2**30:.0f} GiB"


def _seconds(value: timedelta | str | float) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        found = _DURATION.fullmatch(value)
        if found is None:
            raise ValueError(f"{value!r} is no ISO 8601 duration")
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return value
