"""Recordings of the use of GPUs."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from reservation_core.domain.gpu_use.recordings import BadRecordingError, Recording
from reservation_core.domain.gpu_use.samples import GpuSample

AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
CSV = """at_s,gpu,utilisation,memory_used,processes
0,0,0.5,1024,1
10,0,1,,
20,0,,,
0,1,0.25,,0
"""


def played(recording: Recording, second: float, index: int = 0, node: str = "a") -> GpuSample | None:
    return recording.sample("GPU-1", node, index, AT, timedelta(seconds=second))


def utilisation(recording: Recording, second: float, index: int = 0, node: str = "a") -> float | None:
    sample = played(recording, second, index, node)
    return None if sample is None else sample.utilisation


def test_rows_hold_until_the_next_and_the_recording_begins_again() -> None:
    recording = Recording(CSV)
    assert [utilisation(recording, second) for second in (0, 9.9, 10, 19.9, 20, 29.9, 30, 40)] == [
        0.5, 0.5, 1, 1, None, None, 0.5, 1,
    ]  # fmt: skip


def test_empty_values_are_unknown_and_an_empty_row_is_no_sample() -> None:
    recording = Recording(CSV)
    first, second = played(recording, 0), played(recording, 10)
    assert first is not None
    assert second is not None
    assert (first.memory_used, len(first.processes or ())) == (1024, 1)
    assert (second.memory_used, second.processes) == (None, None)
    assert played(recording, 20) is None


def test_a_gpu_that_was_not_recorded_has_no_samples() -> None:
    recording = Recording(CSV)
    assert played(recording, 0, index=2) is None
    assert utilisation(recording, 0, index=1) == 0.25


def test_a_row_holds_for_a_minute_at_most() -> None:
    recording = Recording("at_s,gpu,utilisation\n0,0,0.5\n600,0,1\n")
    assert utilisation(recording, 60) == 0.5
    assert utilisation(recording, 61) is None
    assert utilisation(recording, 600) == 1


def test_json_lines_and_nodes() -> None:
    rows = [
        {"at_s": 0, "gpu": 0, "utilisation": 0.5},
        {"at_s": 0, "gpu": 0, "node": "b", "utilisation": 1, "xid": None},
    ]
    recording = Recording("\n".join(map(json.dumps, rows)) + "\n\n")
    assert (utilisation(recording, 0), utilisation(recording, 0, node="b")) == (0.5, 1)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no rows"),
        ("at_s,gpu\n", "no rows"),
        ("at_s,gpu,speed\n0,0,1\n", "Line 2: `speed` is no column"),
        ("gpu,utilisation\n0,1\n", "Line 2: `at_s` is missing"),
        ("at_s,gpu\n0,x\n", "Line 2"),
        ("at_s,gpu\n0,1.5\n", "Line 2: `gpu` must be a whole number"),
        ("at_s,gpu\n-1,0\n", "Line 2: `at_s`"),
        ("at_s,gpu\nnan,0\n", "Line 2: `at_s`"),
        ("at_s,gpu,utilisation\n0,0,2\n", "Line 2: `utilisation` must be from 0 to 1"),
        ("at_s,gpu,utilisation\n0,0,busy\n", "Line 2: `utilisation` must be a number"),
        ("at_s,gpu,processes\n0,0,-1\n", "Line 2: `processes`"),
        ("at_s,gpu,xid\n0,0,inf\n", "Line 2: `xid`"),
        ("at_s,gpu\n10,0\n10,0\n", "Line 3: `at_s` must grow"),
        ("at_s,gpu,xid\n0,0\n", "Line 2 has not as many values"),
        ("at_s,gpu\n0,0,0\n", "Line 2 has not as many values"),
        ('{"at_s": 0, "gpu": 0}\n{"at_s": ', "Line 2 is no JSON"),
        ('{"at_s": 0, "gpu": 0}\n[]', "Line 2 is no JSON object"),
        ('{"at_s": 0, "gpu": [0]}', "Line 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(BadRecordingError, match=complaint):
        Recording(text)
