"""How times, spans and sizes are written. Zone and `now` are parameters; nothing reads the clock."""

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from reservation_core.domain.time_words import rfc3339, time_words, with_time_words, zone_words

_CODE = re.compile(r"`([^`]+)`")
_LOCAL = re.compile(r"(?<!such as )\b\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?([+-]\d\d:\d\d)?(?![\w:+-]|\.\d)")


def clock(when: datetime | None, zone: ZoneInfo, now: datetime) -> str:
    """`14:30` today, `Tue 24 Nov 14:30` this year, else `Sat 2 Jan 2027 14:30`.

    For pages and tables that name the zone. It is here, too, in the hour that comes twice.
    """
    if when is None:
        return "–"
    local = when.astimezone(zone)
    twice = local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()
    return _short(local, now.astimezone(zone)) + (f" {zone_words(local)}" if twice else "")


def zoned_clock(when: datetime | None, zone: ZoneInfo, now: datetime) -> str:
    """The same with its zone: `14:30 CET`."""
    if when is None:
        return "–"
    local = when.astimezone(zone)
    return f"{_short(local, now.astimezone(zone))} {zone_words(local)}"


def clock_range(start: datetime, end: datetime, zone: ZoneInfo, now: datetime) -> str:
    """`Sun 7 Mar 2027 06:00 to 18:00`: the day of the end only where it is another one. As `clock` for pages."""
    return f"{clock(start, zone, now)} to {clock(end, zone, start)}"


def zoned_range(start: datetime, end: datetime, zone: ZoneInfo, now: datetime) -> str:
    """The same with its zone: `Sun 7 Mar 2027 06:00 to 18:00 CET`."""
    return f"{_zoned_start(start, end, zone, now)} to {zoned_clock(end, zone, start)}"


def range_elements(start: datetime, end: datetime, zone: ZoneInfo, now: datetime) -> Markup:
    """The same as two `time` elements."""
    first = _element(start, zone, _zoned_start(start, end, zone, now))
    return Markup("{} to {}").format(first, _element(end, zone, zoned_clock(end, zone, start)))


def _zoned_start(start: datetime, end: datetime, zone: ZoneInfo, now: datetime) -> str:
    """A start, with its zone where the end has another one."""
    other = zone_words(start.astimezone(zone)) != zone_words(end.astimezone(zone))
    return zoned_clock(start, zone, now) if other else _short(start.astimezone(zone), now.astimezone(zone))


def with_code(text: str) -> Markup:
    """A sentence whose commands and fields, between backticks, are set as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it was escaped


def in_zone(text: str, zone: ZoneInfo, now: datetime) -> str:
    """A sentence of the server with its times written as by `zoned_clock`; a local time gets no zone."""

    def read(found: re.Match[str]) -> str:
        try:
            when = datetime.fromisoformat(found[0])
            if when.tzinfo is None:
                return _short(when, now.astimezone(zone))
            return zoned_clock(when, zone, now)
        except (ValueError, OverflowError):  # only looks like a time
            return found[0]

    return _LOCAL.sub(
        read,
        with_time_words(
            text, lambda when: zoned_clock(when, zone, now), lambda start, end: zoned_range(start, end, zone, now)
        ),
    )


def full_clock(when: datetime, zone: ZoneInfo) -> str:
    """With day, seconds and zone."""
    return time_words(when, zone, seconds=True)


def time_element(when: datetime | None, zone: ZoneInfo, now: datetime, *, zoned: bool = True) -> Markup:
    """A `time` element with its full time as the title; a dash for none."""
    if when is None:
        return Markup("–")
    return _element(when, zone, zoned_clock(when, zone, now) if zoned else clock(when, zone, now))


def _element(when: datetime, zone: ZoneInfo, shown: str) -> Markup:
    element = Markup('<time datetime="{}" title="{}">{}</time>')
    return element.format(rfc3339(when), full_clock(when, zone), shown)


def _short(local: datetime, today: datetime) -> str:
    hour = f"{local.hour:02}:{local.minute:02}"
    day = local.date()
    if day == today.date():
        return hour
    return f"{_day(day)} {hour}" if day.year == today.year else f"{_day(day)} {day.year} {hour}"


@lru_cache(maxsize=512)
def _day(day: date) -> str:
    return f"{day:%a} {day.day} {day:%b}"


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


def wanted_gpus(gpus: int, gpu_type: str | None, nodes: int) -> str:
    """A request as in `gpu-dev list`: `2 h100`, `4 nodes × 8 h100`, `1 any`, and `none` without GPUs."""
    on_each = f"{gpus} {gpu_type or 'any'}" if gpus else "none"
    return on_each if nodes == 1 else f"{nodes} nodes × {on_each}"


def amount(number: float) -> str:
    """A number to the hundredth: `20`, `2.5`, `1,200`."""
    return f"{number:,.2f}".rstrip("0").rstrip(".")
