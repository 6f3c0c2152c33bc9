"""How times, spans and sizes are written. Zone and `now` are parameters; nothing reads the clock."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from markupsafe import Markup

from reservation_core.contracts.base import rfc3339

_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?Z")


def clock(when: datetime | None, zone: ZoneInfo, now: datetime) -> str:
    """`14:30` today, `Tue 24 Nov 14:30` this year, else with the year."""
    if when is None:
        return "–"
    local, today = when.astimezone(zone), now.astimezone(zone)
    if local.date() == today.date():
        return f"{local:%H:%M}"
    return f"{local:%a} {local.day} {local:%b %H:%M}" if local.year == today.year else f"{local:%Y-%m-%d %H:%M}"


def in_zone(text: str, zone: ZoneInfo, now: datetime) -> str:
    """A sentence of the server with its times, which are in UTC, written as by `clock`."""

    def read(found: re.Match[str]) -> str:
        try:
            return clock(datetime.fromisoformat(found[0]), zone, now)
        except ValueError:  # only looks like a time
            return found[0]

    return _TIME.sub(read, text)


def full_clock(when: datetime, zone: ZoneInfo) -> str:
    """With date, seconds and zone."""
    return f"{when.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def time_element(when: datetime | None, zone: ZoneInfo, now: datetime) -> Markup:
    """A `time` element with its full time as the title; a dash for none."""
    if when is None:
        return Markup("–")
    element = Markup('<time datetime="{}" title="{}">{}</time>')
    return element.format(rfc3339(when), full_clock(when, zone), clock(when, zone, now))


def span(length: timedelta) -> str:
    """`2 d 3 h`, `45 min`, `20 s`: the two largest parts."""
    seconds = int(length.total_seconds())
    if seconds < 60:
        return f"{seconds} s"
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    parts = [f"{amount} {unit}" for amount, unit in ((days, "d"), (hours, "h"), (rest // 60, "min")) if amount]
    return " ".join(parts[:2])


def until(when: datetime, now: datetime) -> str:
    """`in 2 h 5 min`, or `5 min ago`."""
    left = when - now
    return f"in {span(left)}" if left >= timedelta(0) else f"{span(-left)} ago"


def hours(value: float) -> str:
    """GPU-hours, as exact as people read them."""
    if value == 0:
        return "0"
    if value < 0.01:
        return "< 0.01"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def gib(value: int) -> str:
    return f"{value / 2**30:.0f} GiB"
