"""A log that is read over several broken streams comes out as it was written."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.jobs.log_positions import LogPosition

START = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
LINES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 250_000, 1_000_000]),
        st.binary(max_size=12).map(lambda text: text.replace(b"\n", b" ")),
    ),
    max_size=12,
)


def stamped(lines: list[tuple[int, bytes]], ends: bool) -> list[tuple[datetime, bytes]]:
    """Lines with their times, microseconds apart as given, and perhaps a last one without its end."""
    at, found = START, []
    for gap, text in lines:
        at += timedelta(microseconds=gap)
        found.append((at, text + b"\n"))
    if found and not ends:
        found[-1] = (found[-1][0], found[-1][1].rstrip(b"\n"))
    return found


def served(lines: list[tuple[datetime, bytes]], since: str | None) -> bytes:
    """What the API answers, `sinceTime` in whole seconds."""
    first = datetime.min.replace(tzinfo=UTC) if since is None else datetime.fromisoformat(since)
    return b"".join(at.strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode() + text for at, text in lines if at >= first)


@given(LINES, st.booleans(), st.lists(st.tuples(st.integers(0, 400), st.integers(1, 50)), max_size=6))
def test_nothing_is_doubled_or_lost_wherever_streams_break(
    lines: list[tuple[int, bytes]], ends: bool, breaks: list[tuple[int, int]]
) -> None:
    log = stamped(lines, ends)
    position, since, given_out = LogPosition(), None, b""
    for length, size in breaks:
        answer = served(log, since)[:length]
        for at in range(0, len(answer), size):
            given_out += position.feed(answer[at : at + size])
        since = position.resume()
    given_out += position.feed(served(log, since))
    assert given_out == b"".join(text for _, text in log)


@given(LINES, LINES, st.integers(0, 400))
def test_what_was_printed_between_two_streams_comes_with_the_second(
    first: list[tuple[int, bytes]], later: list[tuple[int, bytes]], length: int
) -> None:
    log = stamped(first + later, True)
    position = LogPosition()
    given_out = position.feed(served(log[: len(first)], None)[:length])
    given_out += position.feed(served(log, position.resume()))
    assert given_out == b"".join(text for _, text in log)


def test_a_line_without_a_timestamp_passes_as_it_is() -> None:
    position = LogPosition()
    said = b"failed to try resolving symlinks in path: no such file\n2026-11-20T12:00:00Z real\n"
    assert position.feed(said) == b"failed to try resolving symlinks in path: no such file\nreal\n"
    assert position.resume() == "2026-11-20T12:00:00Z"


def test_a_stamp_with_an_offset_is_asked_for_in_utc() -> None:
    position = LogPosition()
    assert position.feed(b"2026-11-20T14:00:00.5+02:00 x\n") == b"x\n"
    assert position.resume() == "2026-11-20T12:00:00Z"
    assert position.feed(b"2026-11-20T14:00:00.500000000+02:00 x\n2026-11-20T12:00:00.6Z y\n") == b"y\n"


def test_nothing_given_means_asking_again_from_the_start() -> None:
    position = LogPosition()
    assert position.feed(b"2026-11-2") == b""
    assert position.resume() is None
    assert position.feed(b"2026-11-20T12:00:00Z x\n") == b"x\n"


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_the_time_of_each_new_line_is_known_also_after_a_reconnection(size: int) -> None:
    stream = b"2026-11-26T12:00:0%d.5Z line %d\n"
    log = b"".join(stream % (number, number) for number in range(6))
    position = LogPosition()
    found: list[tuple[bytes, str]] = []

    def take(text: bytes) -> None:
        for at in range(0, len(text), size):
            chunk = position.feed(text[at : at + size])
            times = dict(chunk.find_times())
            moment = None
            for offset in range(len(chunk)):
                moment = times.get(offset, moment)
                found.append((chunk[offset : offset + 1], f"{moment:%S.%f}"[:4] if moment else ""))

    take(log[: len(log) // 2 + 3])  # amid a line
    assert position.resume() is not None
    take(log)
    expected = b"".join(b"line %d\n" % number for number in range(6))
    assert b"".join(text for text, _ in found) == expected
    assert [time for _, time in found] == [f"0{number}.5" for number in range(6) for _ in range(len("line 0\n"))]
    assert position.feed(b"the kubelet says\n").find_times() == [(0, None)]
