"""A gang's log, read from several pods at once, and the times of lines."""

import threading
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from api_service import job_log
from api_service.job_log import _lines, _merged, _PodLog
from reservation_core.domain.model import PodName
from reservation_core.domain.time_words import rfc3339
from reservation_core.ports.cluster import TimedOutput

AT = datetime(2026, 11, 26, 12, tzinfo=UTC)
STAMP = b"2026-11-26T12:00:00.000Z "


class BrokenPod:
    """A pod whose log fails in a way that nobody foresaw."""

    timed = False

    async def read(self, *, follow: bool) -> AsyncGenerator[bytes]:
        yield b"one line\n"
        raise ValueError("nobody foresaw this")


class SilentPod:
    """A pod that prints, and then says nothing more."""

    timed = False

    async def read(self, *, follow: bool) -> AsyncGenerator[bytes]:
        yield b"its line\n"


async def test_what_breaks_one_pods_log_reaches_whoever_reads() -> None:
    pods: Any = [BrokenPod(), SilentPod()]
    with pytest.raises(ValueError, match="nobody foresaw this"):
        async for _ in _merged(pods):
            pass


def pod_log(*chunks: bytes) -> _PodLog:
    """The log with times of a pod that prints these chunks."""

    async def pod_logs(_name: str, *, follow: bool) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    cluster = SimpleNamespace(pod_logs=pod_logs, forgets_logs=False)
    services: Any = SimpleNamespace(runtime=SimpleNamespace(cluster=cluster))
    return _PodLog(services, PodName("job", 1, 0), timed=True)


async def test_times_are_found_beside_other_requests_and_written_once_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    written: list[datetime] = []

    def find_times() -> list[tuple[int, datetime | None]]:
        threads.append(threading.current_thread())
        return [(0, AT), (40_000, AT + timedelta(seconds=1)), (40_002, None)]

    def write(moment: datetime) -> str:
        written.append(moment)
        return rfc3339(moment)

    monkeypatch.setattr(job_log, "rfc3339", write)
    log = pod_log(TimedOutput(b"x\n" * 20_010, find_times))
    lines = b"".join([part async for part in log.read(follow=False)]).splitlines()
    later = STAMP.replace(b":00.", b":01.")
    assert lines == [STAMP + b"x"] * 20_000 + [later + b"x"] + [b"- x"] * 9
    assert threads != [threading.main_thread()]
    assert written == [AT, AT + timedelta(seconds=1)]


async def test_times_of_empty_lines_do_not_make_a_chunk_many_times_as_long() -> None:
    log = pod_log(TimedOutput(b"\n" * 65_536, lambda: [(0, AT)]))
    parts = [part async for part in log.read(follow=False)]
    assert b"".join(parts) == (STAMP + b"\n") * 65_536
    assert max(map(len, parts)) < 200_000


async def test_only_the_lines_that_begin_in_a_chunk_get_times_and_what_was_passed_on_does_not_come_again() -> None:
    chunks = [TimedOutput(b"one\ntw", lambda: [(0, AT)]), TimedOutput(b"o\nthree\n", lambda: [(1, AT)])]
    log = pod_log(*chunks)
    expected = STAMP + b"one\n" + STAMP + b"two\n" + STAMP + b"three\n"
    assert b"".join([part async for part in log.read(follow=False)]) == expected
    assert [part async for part in log.read(follow=False)] == []
    log = pod_log(*chunks)
    log._passed = 2
    assert b"".join([part async for part in log.read(follow=False)]) == STAMP + b"e\n" + expected[29:]


async def test_the_pieces_of_a_gangs_long_line_have_a_time_or_a_dash() -> None:
    long = [TimedOutput(b"x" * 65_536, lambda: [(0, AT)])] * 4
    log = pod_log(*long, TimedOutput(b"\nnext\n", lambda: [(0, AT)]))
    lines = b"".join([part async for part in _lines(log, 3, follow=False)]).splitlines()
    begins = [line[: len(STAMP) + 4] for line in lines]
    assert begins[0] == b"[3] " + STAMP
    assert begins[-1] == b"[3] " + STAMP
    assert len(lines) > 2
    assert all(line.startswith(b"[3] - ") for line in lines[1:-1])
    assert sum(line.count(b"x") for line in lines[:-1]) == 4 * 65_536
