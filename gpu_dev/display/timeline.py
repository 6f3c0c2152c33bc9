"""Free GPUs over time, drawn in the terminal: a row for each type, a column for each stretch of time. Pure."""

from datetime import datetime, timedelta

from gpu_dev.display.local_times import slot_words
from gpu_dev.wire.bookings import Availability
from reservation_core.domain.short_durations import in_words

_NARROWEST = 12
_DAYS = timedelta(days=1)


def steps_in_a_cell(steps: int, width: int) -> int:
    """The number of steps in a column, if there is room for `width` columns."""
    return -(-steps // max(1, width))


def cells(free: list[int], width: int) -> list[int]:
    """For at most `width` stretches of steps, how many GPUs are free in the whole stretch."""
    per_cell = steps_in_a_cell(len(free), width)
    return [min(free[at : at + per_cell]) for at in range(0, len(free), per_cell)]


def timeline(found: Availability, width: int) -> str:
    """The timeline, `width` characters wide; ends with a line break. Times are in the reader's zone.

    A cell says how many cards of the type are free in all of its time: a digit, `+` for ten or more, `.` for none.
    """
    if not found.items:
        return "The cluster has reported no such GPUs yet. See: gpu-dev nodes\n"
    label = max(len(f"{kind.gpu_type} ({kind.gpus})") for kind in found.items)
    room = max(_NARROWEST, width - label - 2)
    lines = []
    count = 0
    for kind in found.items:
        row = cells(kind.free, room)
        count = len(row)
        lines.append(f"{f'{kind.gpu_type} ({kind.gpus})':<{label}}  {''.join(map(_cell, row))}")
    span = found.step * steps_in_a_cell(len(found.items[0].free), room)
    scale = f"{'':<{label}}  {_scale(found.start, span, count)}"
    return "\n".join([scale, *lines, "", f"{slot_words(found.start, found.end)}.", _legend(span)]) + "\n"


def _cell(free: int) -> str:
    if free <= 0:
        return "."
    return str(free) if free < 10 else "+"


def _scale(start: datetime, span: timedelta, count: int) -> str:
    """The times above their columns, as many as have room."""
    line = ""
    for column in range(count):
        if len(line) > column:
            continue
        at = (start + span * column).astimezone()
        day = f"{at.day} {at:%b}"
        mark = day if span * 8 >= _DAYS else f"{at:%H:%M}" if span * count <= _DAYS else f"{day} {at:%H:%M}"
        if column and len(line) == column and line and line[-1] != " ":
            line += " "
            continue
        if column + len(mark) <= count or not column:
            line = f"{line:<{column}}{mark}"
            line += " " * max(1, min(6, count - len(line)))
    return line.rstrip()


def _legend(span: timedelta) -> str:
    marks = f"One character is {in_words(span)}: how many GPUs are free throughout (. none, + ten or more)."
    return f"{marks} Book: gpu-dev book create"
