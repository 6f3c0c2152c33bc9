"""Time limits as Slurm reads them: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""

import re
from datetime import timedelta

FORMS = "Write it as 90 (minutes), 4:00:00 (hours) or 2-0 (days-hours)."

_FORM = re.compile(
    r"(?:(?P<days>\d{1,9})-)?(?P<first>\d{1,9})(?::(?P<second>\d{1,9}))?(?::(?P<third>\d{1,9}))?", re.ASCII
)
_MINUTE_S = 60


def read_time_limit(text: str) -> timedelta | None:
    """The time limit, with a part of a minute rounded up as Slurm does; None for what is no time limit."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        return None
    days, first, second, third = (None if part is None else int(part) for part in form.groups())
    if days is not None:
        seconds = ((days * 24 + (first or 0)) * 60 + (second or 0)) * 60 + (third or 0)
    elif third is not None:
        seconds = ((first or 0) * 60 + (second or 0)) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    return timedelta(minutes=-(-seconds // _MINUTE_S))


def write_time(duration: timedelta) -> str:
    """A duration as Slurm's tables show it: `5:00`, `4:00:00`, `2-00:00:00`."""
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
