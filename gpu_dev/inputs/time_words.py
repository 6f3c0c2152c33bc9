"""The usual form of a typed time: single spaces, numbers for noon and midnight, and the day before the clock time."""

import re
from datetime import date

from gpu_dev.errors import UsageError

NEAR_DAYS = ("yesterday", "today", "tomorrow")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_AT = re.compile(r" at (?=\d)", re.IGNORECASE | re.ASCII)
_TO = re.compile(r"(?<=[\dm]) (?:to|until|till) (?=\d)", re.IGNORECASE | re.ASCII)
_CLOCK_FIRST = re.compile(
    r"(\d{1,2}[\d:]* ?(?:[ap]m)?(?: ?[-–] ?\d{1,2}[\d:]* ?(?:[ap]m)?)?) (?:on )?([a-z]+(?: [a-z]+)?|\d{4}-\d{2}-\d{2})"
    r"( [a-z]{3,5}| [+-]\d{2})?",
    re.IGNORECASE | re.ASCII,
)
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH = f"(?:{'|'.join(name[:3] for name in MONTHS)})[a-z]{{0,6}}"
_NAMED_DATE = re.compile(
    rf"(?<![-–:\d])\b(?:((?:{'|'.join(name[:3] for name in DAYS)})[a-z]{{0,6}}),? )?"
    rf"(?:(\d{{1,2}})(?:st|nd|rd|th|\.)? ({_MONTH})|({_MONTH}) (\d{{1,2}})(?:st|nd|rd|th)?)"
    r"(?:,? (\d{4}))?,?(?= |$)",
    re.IGNORECASE | re.ASCII,
)
"""A day with the name of its month, such as `Mon 30 Nov 2026`, `30 november` or `nov 30`."""
_NEAR = 330  # days: of a date that is farther away, the one on the other side of today may be meant
_CLOCK_WORDS = {"noon": "12pm", "midnight": "12am"}
_DASH = "–"  # between the ends of a slot; a hyphen would make the end of 09:00-12:00 an offset
_CLOCK_WORD = re.compile(rf"\b({'|'.join(_CLOCK_WORDS)})\b", re.IGNORECASE)


def usual(text: str) -> str:
    """A time or a slot (`9-17`) in its usual form; the short name of a zone stays last.

    A date with the name of its month is to be one in numbers already, by `dated`.
    """
    numbers = _CLOCK_WORD.sub(lambda word: _CLOCK_WORDS[word[0].lower()], " ".join(text.split()))
    numbers = _TO.sub(_DASH, numbers)
    turned = _CLOCK_FIRST.fullmatch(numbers)
    if turned is not None:
        day, zone = turned[2], turned[3] or ""
        if not zone and not is_day(day):
            day, _, name = day.rpartition(" ")
            zone = f" {name}"
        numbers = f"{day} {turned[1].replace('-', _DASH)}{zone}" if is_day(day) else numbers
    return _AT.sub(" ", numbers)


def is_day(text: str) -> bool:
    """Whether it is a day's name or date, rather than a zone's name."""
    name = text.lower().removeprefix("next ")
    is_weekday = len(name) >= 3 and any(day.startswith(name) for day in DAYS)
    return name in NEAR_DAYS or DATE.fullmatch(name) is not None or is_weekday


def dated(text: str, today: date, *, past: bool = False) -> str:
    """The text with dates in numbers: `30 nov 9-17`, or `Mon 30 Nov 2026 09:00` as tables show it, as `2026-11-30 …`.

    A date without a year is the next one, today included; with `past` the last one. Raises UsageError for a date with
    the name of another weekday, and for one that was, or with `past` is to come, within a few weeks.
    """
    return _NAMED_DATE.sub(lambda found: _date_in_numbers(found, today, past=past), " ".join(text.split()))


def _date_in_numbers(found: re.Match[str], today: date, *, past: bool) -> str:
    weekday, month_name, day = found[1], found[3] or found[4], int(found[2] or found[5])
    month = next((number for number, name in enumerate(MONTHS, 1) if name.startswith(month_name.lower())), None)
    if month is None:
        return found[0]
    if found[6]:
        year = int(found[6])
    elif past:
        year = today.year - ((month, day) > (today.month, today.day))
    else:
        year = today.year + ((month, day) < (today.month, today.day))
    written = f"{year}-{month:02}-{day:02}"
    try:
        chosen = date(year, month, day)
    except ValueError:
        return written
    if not found[6] and abs(chosen - today).days > _NEAR:
        nearer = f"{year + 1 if past else year - 1}-{month:02}-{day:02}"
        raise UsageError(f"Which {found[0].strip(' ,')}, {nearer} or {written}? Write the date.")
    name = DAYS[chosen.weekday()]
    if weekday and not name.startswith(weekday.lower()):
        raise UsageError(f"{written} is a {name.capitalize()}, not a {weekday}. Leave the weekday out.")
    return written
