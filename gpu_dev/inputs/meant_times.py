"""The refusal of a typed time that cannot be read, with the form that its writer probably meant."""

import re
from collections.abc import Callable, Iterator
from shlex import quote

from gpu_dev.errors import UsageError
from gpu_dev.inputs.time_words import DAYS, MONTHS, NEAR_DAYS, is_day
from reservation_core.domain.short_durations import meant_durations, seconds_in
from reservation_core.domain.similar_names import similar

_WORD = re.compile(r"(?<![a-z0-9])[a-z]{2,}(?![a-z0-9])\.?")
_PAST_WORDS = re.compile(r"\b(?:ago|last|past|previous|since|the|this|in) ?")
_PAST_FORMS = 'Write it as "2030-01-31 09:00", "yesterday 9am", "mon 14:30", 09:00, now or "3d ago".'
_FILLING = re.compile(r"\b(?:at|from|on|the|this) (?=\S)")
_NAMES = (*NEAR_DAYS, *DAYS, *MONTHS)
_KNOWN = (*_NAMES, "now", "noon", "midnight", "next")
_ALIKE = 0.66  # so much is `tmrw` like `tomorrow`
_YEAR_FIRST = re.compile(r"\b(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)", re.ASCII)
_NUMBERS = re.compile(r"(?<![\d.:/-])(\d{1,2})([./])(\d{1,2})(?:\2(\d{4}|\d{2})?)?(?![\d:./])", re.ASCII)
_HOURS = re.compile(r"(?<![\d:])(\d{1,2})(?::(\d{2}))? ?(?:h|uhr|o'clock)(\d{2})?\b", re.ASCII)
_FOUR_DIGITS = re.compile(r"(?:^|(?<=[a-z] ))(\d{2})(\d{2})(?: ?[-–] ?(\d{2})(\d{2}))?$", re.ASCII)
_HOUR_24 = re.compile(r"(?:^|(?<=[ –-]))24(?::00)?$", re.ASCII)
_ZONED = re.compile(r"(.*\d.*) ([A-Z]{3,5})", re.ASCII)
_BETWEEN = re.compile(r"\s*(?:\.\.+|[-–]|\b(?:to|until|till)\b)\s*", re.IGNORECASE)
_DAY = f"(?:{'|'.join(name[:3] for name in DAYS)})[a-z]{{0,6}}"
_PARTS = {"morning": "9am", "lunchtime": "noon", "afternoon": "2pm", "evening": "6pm", "night": "9pm"}
_PART_OF_DAY = re.compile(rf"(?:(.+?) )??(?:(?:at|in the|this) )?({'|'.join(_PARTS)})|tonight")
_SEVERAL_DAYS = re.compile(
    rf"(?:weekdays|daily|every(?: [a-z]+)?|({_DAY})(?:(?: ?[-–,&] ?| (?:and|to) ){_DAY})+)(?![a-z])(.*)"
)


def refusal(text: str, fault: str, forms: str, read: Callable[[str], object]) -> UsageError:
    """The fault and the form to write; `read` gives None, or an error with `forms`, for what is no time, either.

    Where the form that was probably meant is not complete, the rest is asked for: `24.12.` has no time of day.
    """
    if (days := _SEVERAL_DAYS.fullmatch(text.lower())) is not None:
        series = '; `gpu-dev book create` repeats a booking with --rrule "weekdays 5"' if days[2] else ""
        return UsageError(f'{text!r} is several days. Give the first, such as "{days[1] or "mon"}{days[2]}"{series}.')
    if (part := _PART_OF_DAY.fullmatch(" ".join(text.lower().split()))) is not None:
        example = f"{part[1] or 'today'} {_PARTS[part[2] or 'night']}"
        if _can_be_read(read, example):
            return UsageError(f'{text!r} has no clock time. Write one, such as "{example}".')
    readable: list[str] = []
    asked_about: dict[str, UsageError] = {}
    for meant in dict.fromkeys(_meanings(text)):
        try:
            if read(meant) is not None:
                readable.append(meant)
        except UsageError as error:
            if forms not in str(error) or str(error).startswith("There is no day "):
                asked_about[meant] = error
    if likely := readable or (list(asked_about) if len(asked_about) > 1 else []):
        named = " or ".join(f'"{meant}"' for meant in likely)
        return UsageError(f"{fault} Did you mean {named}?")
    if (zoned := _ZONED.fullmatch(text)) is not None and _can_be_read(read, zoned[1]):
        return UsageError(
            f"{zoned[2]} is not the time zone here. Leave it out, or give the zone with --time-zone, such as "
            "--time-zone Europe/Stockholm."
        )
    return next(iter(asked_about.values()), UsageError(f"{fault} {forms}"))


def past_refusal(text: str, fault: str, forms: str) -> UsageError:
    """The fault of a time to look back at, of which `last week` may mean `7d`; `forms` are those of times to come."""
    plain = _PAST_WORDS.sub("", text.lower()).strip()
    meant = [plain] if is_day(plain) else [f"{length} ago" for length in meant_durations(plain)]
    if f" is not a time. {forms}" in fault and meant:
        return UsageError(f'{text!r} is not a time. Did you mean "{meant[-1]}"?')
    return UsageError(fault.replace(forms, _PAST_FORMS))


def period_meant(text: str, read: Callable[[str, str], object]) -> str | None:
    """The options for what is typed as a begin and an end in one, such as `mon-fri` or `nov 3 to 7`; else None.

    `read` gets both together, and raises UsageError for a begin and an end that would be refused.
    """
    text = _WORD.sub(_known_word, text.lower())
    for between in _BETWEEN.finditer(text):
        first, last = text[: between.start()], text[between.end() :]
        day, month = first.rpartition(" ")[0], last.partition(" ")[2]
        for begin, end in ((first, last), (first, f"{day} {last}"), (f"{first} {month}", last)):
            if _can_be_read(read, begin, end):
                return f"--from {quote(begin)} --to {quote(end)}"
    return None


def _can_be_read(read: Callable[..., object], *typed: str) -> bool:
    try:
        return read(*typed) is not None
    except UsageError:
        return False


def _meanings(text: str) -> Iterator[str]:
    """Other forms of a text, the likely ones first, whether or not they can be read."""
    lowered = " ".join(text.lower().split())
    ago = lowered.removeprefix("+").removesuffix(" from now").strip()
    if seconds_in(ago) is not None:
        yield f"in {ago}"
        return
    plain = _WORD.sub(_known_word, _FILLING.sub("", lowered))
    plain = _YEAR_FIRST.sub(lambda date: f"{date[1]}-{int(date[2]):02}-{int(date[3]):02}", plain)
    plain = _HOURS.sub(lambda hour: f"{hour[1]}:{hour[2] or hour[3] or '00'}", plain)
    plain = _HOUR_24.sub("midnight", _FOUR_DIGITS.sub(_with_colons, plain))
    if plain.isdecimal():
        plain = f"{plain}:00"
    numbers = _NUMBERS.search(plain)
    for meant in [plain] if numbers is None else _of_numbers(numbers):
        changed = plain if numbers is None else f"{plain[: numbers.start()]}{meant}{plain[numbers.end() :]}"
        if changed != lowered:
            yield changed


def _known_word(found: re.Match[str]) -> str:
    """The word of times that is meant by a mistyped or a short one."""
    word = found[0].rstrip(".")
    if len(word) == 2:
        days = [day[:3] for day in DAYS if day.startswith(word)]
        return days[0] if days else found[0]
    if any(known.startswith(word) for known in _KNOWN):
        return word
    return similar(word, _NAMES, _ALIKE) or found[0]


def _with_colons(found: re.Match[str]) -> str:
    start = f"{found[1]}:{found[2]}"
    return start if found[3] is None else f"{start}-{found[3]}:{found[4]}"


def _of_numbers(found: re.Match[str]) -> Iterator[str]:
    """The dates and the clock time that `24.12.`, `12/24` or `14.30` may be."""
    first, mark, second = int(found[1]), found[2], int(found[3])
    year = "" if found[4] is None else f" {found[4]:0>4}" if len(found[4]) == 4 else f" 20{found[4]}"
    readings = [(first, second), (second, first)] if mark == "/" and first != second else [(first, second)]
    for day, month in readings:
        if 1 <= month <= len(MONTHS) and 1 <= day <= 31:
            yield f"{day} {MONTHS[month - 1][:3]}{year}"
    if mark == "." and len(found[3]) == 2 and found[0][-1].isdigit() and not year:
        yield f"{first}:{found[3]}"
