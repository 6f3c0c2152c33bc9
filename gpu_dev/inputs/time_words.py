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
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_PRINTED_DATE = re.compile(r"(?:([a-z]{3,9}),? )?(\d{1,2}) ([a-z]{3,9}) (\d{4})", re.IGNORECASE | re.ASCII)
_CLOCK_WORDS = {"noon": "12pm", "midnight": "12am"}
_DASH = "–"  # between the ends of a slot; a hyphen would make the end of 09:00-12:00 an offset
_CLOCK_WORD = re.compile(rf"\b({'|'.join(_CLOCK_WORDS)})\b", re.IGNORECASE)


def usual(text: str) -> str:
    """A time or a slot (`9-17`) in its usual form; the short name of a zone stays last.

    A date as tables show it (`Mon 30 Nov 2026 09:00:12`) is one as in `2026-11-30 09:00`. Raises UsageError for a date
    with the name of another weekday.
    """
    numbers = _CLOCK_WORD.sub(lambda word: _CLOCK_WORDS[word[0].lower()], " ".join(text.split()))
    numbers = _TO.sub(_DASH, _PRINTED_DATE.sub(_plain_date, numbers))
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


def _plain_date(found: re.Match[str]) -> str:
    months = [number for number, name in enumerate(_MONTHS, 1) if name.startswith(found[3].lower())]
    if len(months) != 1:
        return found[0]
    written = f"{found[4]}-{months[0]:02}-{int(found[2]):02}"
    try:
        day = DAYS[date.fromisoformat(written).weekday()]
    except ValueError:
        return written
    if found[1] and not day.startswith(found[1].lower()):
        raise UsageError(f"{written} is a {day.capitalize()}, not a {found[1]}. Leave the weekday out.")
    return written
