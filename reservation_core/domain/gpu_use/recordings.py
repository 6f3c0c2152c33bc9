"""Recordings of the use of GPUs, which simulated GPUs play back.

A recording is CSV with a first line of names, or JSON lines with the same names. `at_s` (seconds since its begin) and
`gpu` (the index within its node) are needed; `node` is needed only where nodes differ. All others may be missing or
empty: `utilisation` (0 to 1), `memory_used` and `memory_total` (bytes), `power_w`, `temperature_c`, `ecc_uncorrected`,
`xid`, `processes` (how many), `clock_mhz` and `throttled` (0 or 1). A row holds until the GPU's next row, for at most
60 seconds.
"""

import csv
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from reservation_core.domain.gpu_use.samples import MOST_PROCESSES, GpuProcess, GpuSample, ImplausibleSampleError

MOST_ROWS = 1_000_000
HOLDS_S = 60.0
_PLACE = ("at_s", "gpu", "node")
_WHOLE = (
    "memory_used",
    "memory_total",
    "temperature_c",
    "ecc_uncorrected",
    "xid",
    "processes",
    "clock_mhz",
    "throttled",
)
_VALUES = ("utilisation", "power_w", *_WHOLE)
_LONGEST_S = 31 * 86_400.0
_AT = datetime(1970, 1, 1, tzinfo=UTC)


class BadRecordingError(ValueError):
    """A recording can't be read; the text names the line and what is wrong."""


@dataclass(slots=True)
class _Track:
    """The rows of one GPU in order of time."""

    times: list[float] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)


class Recording:
    """A recording, played again from its begin when it is over. Raises BadRecordingError."""

    def __init__(self, text: str) -> None:
        self._tracks: dict[tuple[str | None, int], _Track] = {}
        rows = 0
        for number, row in _rows(text):
            rows += 1
            if rows > MOST_ROWS:
                raise BadRecordingError(f"It has more than {MOST_ROWS} rows.")
            try:
                self._add(row)
            except (ValueError, TypeError) as error:
                raise BadRecordingError(f"Line {number}: {error}") from error
        if not rows:
            raise BadRecordingError("It has no rows.")
        last = max(track.times[-1] for track in self._tracks.values())
        times = sorted({at for track in self._tracks.values() for at in track.times})
        self._length_s = last + (times[-1] - times[-2] if len(times) > 1 else 10.0)

    def sample(self, uuid: str, node: str, index: int, at: datetime, elapsed: timedelta) -> GpuSample | None:
        """Return the recorded use of a GPU at a time after the beginning; None where the recording has none."""
        track = self._tracks.get((node, index)) or self._tracks.get((None, index))
        if track is None:
            return None
        at_s = elapsed.total_seconds() % self._length_s
        place = bisect_right(track.times, at_s) - 1
        if place < 0 or at_s - track.times[place] > HOLDS_S or not track.values[place]:
            return None
        return _sample(uuid, at, track.values[place])

    def _add(self, row: Mapping[str, Any]) -> None:
        if unknown := row.keys() - {*_PLACE, *_VALUES}:
            raise ValueError(f"`{min(map(str, unknown))}` is no column of a recording.")
        at_s, index = float(_needed(row, "at_s")), _whole("gpu", _needed(row, "gpu"))
        if not 0 <= at_s <= _LONGEST_S:
            raise ValueError(f"`at_s` must be from 0 to {_LONGEST_S:.0f}.")
        values = {name: _value(name, row[name]) for name in _VALUES if row.get(name) not in (None, "")}
        _sample("GPU", _AT, values)
        node = row.get("node") or None
        track = self._tracks.setdefault((node, index), _Track())
        if track.times and at_s <= track.times[-1]:
            raise ValueError("`at_s` must grow from row to row of a GPU.")
        track.times.append(at_s)
        track.values.append(values)


def _rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise BadRecordingError(f"Line {number} is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise BadRecordingError(f"Line {number} is no JSON object.")
            yield number, row
        return
    reader = csv.DictReader(text.splitlines())
    for row in reader:
        if None in row or None in row.values():
            raise BadRecordingError(f"Line {reader.line_num} has not as many values as there are names.")
        yield reader.line_num, row


def _needed(row: Mapping[str, Any], name: str) -> Any:
    value = row.get(name)
    if value in (None, ""):
        raise ValueError(f"`{name}` is missing.")
    return value


def _value(name: str, value: Any) -> float:
    try:
        return _whole(name, value) if name in _WHOLE else float(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"`{name}` must be a number, not {value!r}.") from error


def _whole(name: str, value: Any) -> int:
    number = float(value)
    if not number.is_integer():
        raise ValueError(f"`{name}` must be a whole number.")
    return int(number)


def _sample(uuid: str, at: datetime, values: Mapping[str, Any]) -> GpuSample:
    given = dict(values)
    count = given.pop("processes", None)
    if count is not None and not 0 <= count <= MOST_PROCESSES:
        raise ImplausibleSampleError(f"`processes` must be from 0 to {MOST_PROCESSES}, not {count}.")
    processes = None if count is None else tuple(GpuProcess(number, None) for number in range(count))
    throttled = given.pop("throttled", None)
    if throttled not in (None, 0, 1):
        raise ImplausibleSampleError(f"`throttled` must be 0 or 1, not {throttled}.")
    whether = None if throttled is None else bool(throttled)
    return GpuSample(uuid, at, processes=processes, throttled=whether, **given)
