"""Durations as users type them (`4h`, `1h30m`, `1.5h`, `4 hours`), and as tables (`1h30m`) and messages show them."""

import re
from datetime import timedelta

LONGEST_DURATION = timedelta(days=90)
_WORDS = ("w(?:eeks?)?", "d(?:ays?)?", "h(?:(?:ou)?rs?)?", "m(?:in(?:ute)?s?)?", "s(?:ec(?:ond)?s?)?")
_UNITS_S = (604_800, 86_400, 3_600, 60, 1)
_SHORT = re.compile("".join(rf"(?:(\d{{1,9}}) ?{word} ?)?" for word in _WORDS), re.ASCII)
_DECIMAL = re.compile(rf"(\d{{1,9}}\.\d{{1,3}}) ?(?:{'|'.join(f'({word})' for word in _WORDS)})", re.ASCII)
_ISO8601 = re.compile(
    r"P(?:(\d{1,2})Y)?(?:(\d{1,5})D)?(?:T(?=\d)(?:(\d{1,5})H)?(?:(\d{1,7})M)?(?:(\d{1,9})S)?)?", re.ASCII
)
_MOST_S = 10**9
_UNITS = ("weeks", "days", "hours", "minutes", "seconds")
_COUNTS = dict(zip(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight"), range(9), strict=True)) | {
    "a": 1,
    "an": 1,
}
_CLOCK = re.compile(r"(\d{1,4}):(\d{2})(?::(\d{2}))?", re.ASCII)
_PART = re.compile(r"(?:a )?(half|quarter) (?:of )?(?:an? )?(hour|day)")
_AND_PART = re.compile(r"(\d{1,4}|[a-z]+) (?:([a-z]+) and (?:a )?(half|quarter)|and (?:a )?(half|quarter) ([a-z]+))")
"""`1 day and a half`, `two and a half hours`."""
_GROUPED = re.compile(r"\d,\d{3}(?!\d)", re.ASCII)
"""A comma between thousands, or with three decimals: `1,000 s` may be either."""
_LONG = re.compile(r"(?:(\d{1,4}(?:\.\d{1,2})?) ?)?(month|year)s?", re.ASCII)
_WORDED = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_SHOWN = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def seconds_in(text: str) -> int | None:
    """The seconds of a duration (ignoring case and additional spaces); None if it is malformed."""
    wanted = re.sub(" +", " ", text.strip().lower())
    decimal = _DECIMAL.fullmatch(wanted)
    if decimal is not None:
        unit = next(unit for word, unit in zip(decimal.groups()[1:], _UNITS_S, strict=True) if word)
        return round(float(decimal[1]) * unit)
    short = _SHORT.fullmatch(wanted)
    if short is None or not wanted:
        return None
    return sum(int(count or 0) * unit for count, unit in zip(short.groups(), _UNITS_S, strict=True))


def meant_durations(text: str) -> list[str]:
    """What a text that is no duration may mean, in a form that is one: `an hour`, `1:30`, `2,5 hourz`, `half a day`."""
    lowered = re.sub(" +", " ", text.lower()).rstrip(".!?")
    if len(lowered) < len("1h") or _GROUPED.search(lowered):
        return []
    if (clock := _CLOCK.fullmatch(lowered)) is not None:
        first, second, third = (part and int(part) for part in clock.groups())
        forms = [f"{first}m{second}s", f"{first}h{second}m"] if third is None else [f"{first}h{second}m{third}s"]
        return [written(timedelta(seconds=seconds_in(form) or 0)) for form in forms]
    if (part := _PART.fullmatch(lowered)) is not None:
        whole = timedelta(hours=1) if part[2] == "hour" else timedelta(days=1)
        return [written(whole / (2 if part[1] == "half" else 4))]
    if (mixed := _AND_PART.fullmatch(lowered)) is not None:
        decimals = "5" if "half" in mixed.group(3, 4) else "25"
        lowered = f"{_COUNTS.get(mixed[1], mixed[1])}.{decimals} {mixed[2] or mixed[5]}"
    plain = re.sub(r"(?<=\d),(?=\d)", ".", lowered)
    plain = re.sub(r"[a-z]+", lambda word: str(_COUNTS.get(word[0]) or _unit_meant(word[0])), plain)
    plain = re.sub(" +", " ", plain.replace(",", " ").replace("and", " ")).strip(" ")
    plain = _LONG.sub(lambda found: f"{round(float(found[1] or 1) * (30 if found[2] == 'month' else 365))}d", plain)
    seconds = seconds_in(plain) or seconds_in(f"1 {plain}")
    return [written(timedelta(seconds=seconds))] if seconds and seconds < _MOST_S else []


def _unit_meant(word: str) -> str:
    """The unit that a mistyped one means; other words stay."""
    if len(word) < 3 or seconds_in(f"1 {word}") is not None or _LONG.fullmatch(word):
        return word
    from difflib import get_close_matches  # noqa: PLC0415 - few lengths are mistyped, and commands are quick

    return next(iter(get_close_matches(word, _UNITS, 1, 0.7)), word)


def written(duration: timedelta) -> str:
    """The short form, to the second: `2d`, `1h30m`, `45s`; `seconds_in` reads it back."""
    left = int(duration.total_seconds())
    parts = []
    for unit, letter in _SHOWN:
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts) or "0s"


def in_words(duration: timedelta) -> str:
    """The same in words: `1 day 2 hours`, `1 hour 30 minutes`, `45 seconds`."""
    left = int(duration.total_seconds())
    parts = []
    for unit, word in _WORDED:
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count} {word}" if count == 1 else f"{count} {word}s")
    return " ".join(parts) or "0 seconds"


def plain_iso8601(text: str) -> timedelta | None:
    """A duration of years, days, hours, minutes and seconds (`P2D`, `PT1H30M`, `P1Y35D`); None for all else."""
    read = _ISO8601.fullmatch(text)
    if read is None or text == "P":
        return None
    years, days, hours, minutes, seconds = (int(count or 0) for count in read.groups())
    return timedelta(days=365 * years + days, hours=hours, minutes=minutes, seconds=seconds)


def iso8601(duration: timedelta) -> str:
    """The form of REST messages, as pydantic writes it: `PT1H30M`, `P1Y35D`."""
    years, days = divmod(duration.days, 365)
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    part = f"{seconds}.{duration.microseconds:06d}".rstrip("0") if duration.microseconds else str(seconds)
    date = "".join(f"{count}{unit}" for count, unit in ((years, "Y"), (days, "D")) if count)
    times = ((hours, "H"), (minutes, "M"), (part, "S"))
    clock = "".join(f"{count}{unit}" for count, unit in times if count not in (0, "0"))
    return f"P{date}{'T' if clock else ''}{clock}" if date or clock else "PT0S"
