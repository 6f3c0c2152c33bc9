"""A simulation in words: what was changed, the figures of a table, and the sentence that answers the question."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from reservation_core.domain.short_durations import written

ALIKE = 0.01
"""Mean waits that differ by a smaller part are the same."""


class Figures(Protocol):
    """What the table shows of one side."""

    @property
    def gpus(self) -> int: ...
    @property
    def mean_s(self) -> float: ...
    @property
    def median_s(self) -> float: ...
    @property
    def p90_s(self) -> float: ...
    @property
    def longest_s(self) -> float: ...
    @property
    def used(self) -> float: ...
    @property
    def broken(self) -> int: ...
    @property
    def ahead_s(self) -> float: ...
    @property
    def refused_bookings(self) -> int: ...


def table(today: Figures, changed: Figures, bookings: int = 0) -> list[tuple[str, str, str]]:
    """Rows of a table: what the figure is, as today, and changed. `bookings` were asked for on both sides."""
    sides = zip(_column(today, bookings), _column(changed, bookings), strict=True)
    return [(name, before, after) for (name, before), (_, after) in sides]


def _column(side: Figures, bookings: int) -> list[tuple[str, str]]:
    booked = [("Bookings", f"{bookings - side.refused_bookings:,}")] if bookings else []
    return [
        *booked,
        ("GPUs", f"{side.gpus:,}"),
        ("Mean wait", wait_text(side.mean_s)),
        ("Half waited less than", _bound_text(side.median_s, side)),
        ("Nine of ten less than", _bound_text(side.p90_s, side)),
        ("Longest wait", wait_text(side.longest_s)),
        ("Use of GPUs", f"{side.used:.0%}"),
        ("Broken promises", f"{side.broken:,}"),
        ("Start before its promise, median", wait_text(side.ahead_s)),
    ]


def _bound_text(seconds: float, side: Figures) -> str:
    return wait_text(max(1, seconds) if side.longest_s else 0)


def wait_text(seconds: float) -> str:
    """A time as a table shows it: to the hour beyond a day, to the minute beyond an hour; "none" for 0."""
    if 0 < seconds < 1:
        return "less than 1s"
    unit = 3600 if seconds >= 86_400 else 60 if seconds >= 3600 else 1
    whole = round(seconds / unit) * unit
    return written(timedelta(seconds=whole)) if whole else "none"


def change_text(added: Mapping[str, int], order: str | None, half_life: timedelta | None, *, has_policy: bool) -> str:
    """The change as the beginning of a sentence; "Unchanged" for none."""
    parts = [_nodes_text(added)] if added else []
    if order is not None:
        parts.append("small jobs first" if order == "area" else "first come, first served")
    if half_life is not None:
        parts.append(f"fair shares with a half-life of {written(half_life)}" if half_life else "no fair shares")
    if has_policy:
        parts.append("the given rules")
    if not parts:
        return "Unchanged"
    return "With " + (", ".join(parts[:-1]) + " and " if parts[1:] else "") + parts[-1]


def _nodes_text(added: Mapping[str, int]) -> str:
    nodes = [
        f"{count:,} more {'' if gpu_type == 'gpu' else f'{gpu_type} '}{'node' if count == 1 else 'nodes'}"
        for gpu_type, count in added.items()
    ]
    return ", ".join(nodes)


def answer_text(change: str, today: Figures, changed: Figures) -> str:
    """The answer in a sentence."""
    before, after = today.mean_s, changed.mean_s
    waits = f"{change}, jobs would have waited"
    if not before:
        as_today = f"{change}, no job would have waited, as today."
        return f"{waits} {wait_text(after)} on average; today no job waits." if after else as_today
    if not after:
        return f"{change}, no job would have waited; today jobs wait {wait_text(before)} on average."
    if abs(before - after) <= ALIKE * max(before, 1.0):
        return f"{waits} as long as today: {wait_text(before)} on average."
    if before < 1:
        return f"{waits} {wait_text(after)} on average; today jobs wait {wait_text(before)}."
    part = f"{abs(before - after) / before:.0%} {'less' if after < before else 'more'}"
    return f"{waits} {wait_text(after)} on average: {part} than the {wait_text(before)} of today."
