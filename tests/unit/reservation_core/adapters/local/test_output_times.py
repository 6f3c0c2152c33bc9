"""When a pod printed: beside its log, in bounded space."""

import errno
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from reservation_core.adapters.local import log_reading, output_times
from reservation_core.adapters.local.bounded_log import SMALLEST_LIMIT, BoundedLog
from reservation_core.adapters.local.output_times import MOST_RECORDS, RECORD, SLOWEST_MS, OutputTimes, times_path

BEGIN = datetime(2026, 11, 26, 12, tzinfo=UTC)


class FakeTime:
    """The clock of the module under test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = BEGIN
        monkeypatch.setattr(output_times.time, "time", lambda: self.now.timestamp())

    def pass_on(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


def times_of(log: Path, place: int = 0) -> list[tuple[int, float]]:
    """The offsets of lines, and seconds since the begin."""
    chunk = log_reading.read_from(log, place, True)
    found = log_reading.LogTimes(log).between(place, place + len(chunk))
    begins = [0, *(offset for offset in range(1, len(chunk)) if chunk[offset - 1 : offset] == b"\n")]
    known = [(begin, [at for offset, at in found if offset <= begin]) for begin in begins]
    return [(begin, (times[-1] - BEGIN).total_seconds()) for begin, times in known if times]


def records_of(log: Path) -> list[tuple[int, float]]:
    """The position of each record, and its seconds since the begin."""
    found = log_reading.LogTimes(log).between(0, 2**62)
    return [(position, (at - BEGIN).total_seconds()) for position, at in found]


def test_each_line_has_the_time_of_its_first_byte(tmp_path: Path, clock: FakeTime) -> None:
    path = tmp_path / "x.log"
    log = BoundedLog(str(path), 0, OutputTimes(str(path)))
    log.write(b"one\nha")
    clock.pass_on(5)
    log.write(b"lf\nthree\n")
    clock.pass_on(0.5)  # less than a second after the last record
    log.write(b"four\n")
    clock.pass_on(5)
    log.write(b"five\n")
    log.close()
    assert path.read_bytes() == b"one\nhalf\nthree\nfour\nfive\n"
    assert times_of(path) == [(0, 0), (4, 0), (9, 5), (15, 5), (20, 10.5)]
    assert times_of(path, 9) == [(0, 5), (6, 5), (11, 10.5)]


def test_times_are_right_after_output_that_was_left_out(tmp_path: Path, clock: FakeTime) -> None:
    path = tmp_path / "x.log"
    log = BoundedLog(str(path), SMALLEST_LIMIT, OutputTimes(str(path)))
    for number in range(1000):
        log.write(b"%059d\n" % number)
        clock.pass_on(2)
    log.close()
    place = log_reading.last_lines(path, 2)
    chunk = log_reading.read_from(path, place, True)
    assert chunk == b"%059d\n%059d\n" % (998, 999)
    assert times_of(path, place) == [(0, 1996), (60, 1998)]


def test_a_year_of_output_takes_bounded_space(tmp_path: Path, clock: FakeTime) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"")
    times = OutputTimes(str(path))
    for second in range(3 * MOST_RECORDS):
        times.note(second * 10)
        clock.pass_on(1)
    times.close()
    assert Path(times_path(str(path))).stat().st_size <= MOST_RECORDS * RECORD
    path.write_bytes(b"123456789\n" * 40_000)
    found = times_of(path)
    assert all(0 <= offset / 10 - at <= 4 for offset, at in found)


def test_no_time_is_wrong_by_more_than_the_pace_of_a_job_that_prints_rarely(tmp_path: Path, clock: FakeTime) -> None:
    path = tmp_path / "x.log"
    times = OutputTimes(str(path))
    printed: dict[int, float] = {}
    for position in range(MOST_RECORDS + 100):
        printed[position] = (clock.now - BEGIN).total_seconds()
        times.note(position)
        clock.pass_on(1 if position < MOST_RECORDS - 14 else 1800)
    times.close()
    records = records_of(path)
    assert len(records) < MOST_RECORDS
    assert [(position, printed[position]) for position, _ in records] == records
    noted, errors = dict(records), []
    last = 0.0
    for position, at in printed.items():
        last = noted.get(position, last)
        errors.append(at - last)
    assert max(errors) < 2


def test_the_oldest_records_go_where_no_pace_frees_enough(tmp_path: Path, clock: FakeTime) -> None:
    path = tmp_path / "x.log"
    times = OutputTimes(str(path))
    for position in range(MOST_RECORDS + 1):
        times.note(position)
        clock.pass_on(1800)
    times.close()
    records = records_of(path)
    assert records == [(position, position * 1800) for position in range(MOST_RECORDS // 4, MOST_RECORDS + 1)]
    assert log_reading.LogTimes(path).between(0, MOST_RECORDS // 4) == []


def test_a_disk_that_is_full_while_records_go_is_tried_again_after_the_pace(
    tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.log"
    times = OutputTimes(str(path))
    for position in range(MOST_RECORDS):
        times.note(position)
        clock.pass_on(1)
    tries: list[str] = []

    def replace(new: str, _old: str) -> None:
        tries.append(new)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(output_times.os, "replace", replace)
        for position in range(MOST_RECORDS, MOST_RECORDS + 20):
            times.note(position)
            clock.pass_on(0.1)
    assert len(tries) == 2
    times.note(MOST_RECORDS + 20)
    times.close()
    records = records_of(path)
    assert records[:2] == [(0, 0), (2, 2)]
    assert records[-1] == (MOST_RECORDS + 20, MOST_RECORDS + 2)


def test_months_of_output_keep_the_slowest_pace_and_the_bound(tmp_path: Path, clock: FakeTime) -> None:
    path = tmp_path / "x.log"
    times = OutputTimes(str(path))
    for position in range(4 * MOST_RECORDS):
        times.note(position)
        clock.pass_on(40)
        assert position % 1000 or Path(times_path(str(path))).stat().st_size <= MOST_RECORDS * RECORD
    times.close()
    moments = [at for _, at in records_of(path)]
    assert max(later - at for at, later in pairwise(moments)) <= SLOWEST_MS / 1000 + 40


@pytest.mark.parametrize("step", [timedelta(hours=-2), timedelta(hours=2), timedelta(seconds=-0.1)])
def test_a_step_of_the_clock_does_not_stop_the_recording(tmp_path: Path, clock: FakeTime, step: timedelta) -> None:
    path = tmp_path / "x.log"
    log = BoundedLog(str(path), 0, OutputTimes(str(path)))
    expected = []
    for number in range(5):
        expected.append((number * 2, (clock.now - BEGIN).total_seconds()))
        log.write(b"%d\n" % number)
        if number == 1:
            clock.now += step
        else:
            clock.pass_on(2)
    log.close()
    assert times_of(path) == expected


def test_times_are_read_again_only_after_new_ones(
    tmp_path: Path, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    read_bytes = Path.read_bytes

    def counted(path: Path) -> bytes:
        reads.append(path)
        return read_bytes(path)

    path = tmp_path / "x.log"
    times, known = OutputTimes(str(path)), log_reading.LogTimes(path)
    monkeypatch.setattr(Path, "read_bytes", counted)
    times.note(0)
    assert [known.between(at, at + 10) for at in range(3)] == [[(0, BEGIN)]] * 3
    assert len(reads) == 1
    clock.pass_on(1)
    times.note(5)
    assert known.between(3, 10) == [(0, BEGIN), (2, BEGIN + timedelta(seconds=1))]
    assert len(reads) == 2
    log_reading.remove(path)
    assert known.between(0, 10) == []
    times.close()


def test_a_log_without_times_or_with_half_a_record_is_read_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"one\ntwo\n")
    assert times_of(path) == []
    Path(times_path(str(path))).write_bytes(b"x" * (RECORD - 1))
    assert times_of(path) == []


def test_a_clock_that_steps_back_and_a_full_disk_lose_nothing_else(tmp_path: Path, clock: FakeTime) -> None:
    path = tmp_path / "x.log"
    log = BoundedLog(str(path), 0, OutputTimes(str(tmp_path / "no-such-folder" / "x.log")))
    log.write(b"one\n")
    log.close()
    assert path.read_bytes() == b"one\n"
    other = BoundedLog(str(tmp_path / "y.log"), 0, OutputTimes(str(tmp_path / "y.log")))
    other.write(b"one\n")
    clock.pass_on(-3600)
    other.write(b"two\n")
    other.close()
    assert times_of(tmp_path / "y.log") == [(0, 0), (4, -3600)]


def test_times_go_with_their_log(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = BoundedLog(str(path), 0, OutputTimes(str(path)))
    log.write(b"one\n")
    log.close()
    Path(f"{times_path(str(path))}.new").write_bytes(b"of a supervisor that was killed amid thinning")
    assert (log_reading.size_and_time(path)[0], log_reading.times_size(path)) == (4, RECORD)
    log_reading.remove(path)
    assert list(tmp_path.iterdir()) == []
