"""A log for a page: escaped, coloured, bounded, and as it comes."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from api_service.web.jobs import log_tail
from api_service.web.jobs.ansi_text import LONGEST_LINE
from api_service.web.jobs.log_tail import KEPT_LETTERS, KEPT_LINES, read_tail, stream_lines
from reservation_core.ports.cluster import OmittedOutput
from tests.virtual_time import run_virtually


async def chunks(*parts: bytes) -> AsyncGenerator[bytes]:
    for part in parts:
        yield part


async def told_in_turn(log: AsyncGenerator[bytes], first: asyncio.Event, second: asyncio.Event) -> list[dict[str, Any]]:
    """The events of lines; the first one lets the log go on to `first`, the later ones to `second`."""
    events: list[dict[str, Any]] = []
    async for event in stream_lines(log):
        if event.startswith(b"event: lines"):
            events.append(json.loads(event.split(b"data: ")[1]))
            (second if first.is_set() else first).set()
    return events


async def test_the_end_of_a_log() -> None:
    tail = await read_tail(chunks(b"a\nb", b"b\nc\r\n", b"d"), lines=3, at_most=1000)
    assert (tail.lines, tail.left_out, tail.goes_on) == (["bb", "c", "d"], 1, False)
    tail = await read_tail(chunks(b"x\n", b"y\n", b"z\n"), lines=9, at_most=1)
    assert (tail.lines, tail.goes_on) == (["x"], True)


async def told(log: AsyncGenerator[bytes]) -> list[dict[str, Any]]:
    events = [event async for event in stream_lines(log)]
    assert events[-1] == b"event: end\ndata: {}\n\n"
    return [json.loads(event.split(b"data: ")[1]) for event in events[:-1]]


async def test_everything_that_is_printed_is_told_once_and_in_order() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def log() -> AsyncGenerator[bytes]:
        yield b"one\ntw"
        await first.wait()
        yield b"o\nthree\n"
        await second.wait()
        yield b"four"

    events = await told_in_turn(log(), first, second)
    assert [line for event in events for line in event["lines"]] == ["one", "two", "three", "four"]
    assert [event["anew"] for event in events][:2] == [True, False]


def test_what_was_printed_before_is_told_at_once_though_it_is_read_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader's place may be near its end: the lines of a first part alone would move them."""
    monkeypatch.setattr(log_tail, "_PAUSE_S", 1.0)

    async def log() -> AsyncGenerator[bytes]:
        for part in range(6):
            await asyncio.sleep(0.2)
            yield b"%d\n" % part

    [event] = run_virtually(told(log()))
    assert event["lines"] == ["0", "1", "2", "3", "4", "5"]


async def test_of_a_long_log_the_end_is_told_and_how_much_is_not() -> None:
    lines = b"".join(b"%d\n" % number for number in range(KEPT_LINES + 7))
    [event] = await told(chunks(lines))
    assert event["first"] == 8
    assert len(event["lines"]) == KEPT_LINES


async def test_a_burst_between_two_events_begins_anew() -> None:
    """Lines that were dropped are not between those of two events: a page would number the later ones wrongly."""
    burst, last = asyncio.Event(), asyncio.Event()

    async def log() -> AsyncGenerator[bytes]:
        yield b"one\n"
        await burst.wait()
        yield b"x\n" * (KEPT_LINES + 5)
        await last.wait()
        yield b"end\n"

    events = await told_in_turn(log(), burst, last)
    assert [(event["first"], event["anew"]) for event in events if event["lines"]] == [
        (1, True),
        (7, True),
        (KEPT_LINES + 7, False),
    ]


async def test_of_long_lines_fewer_are_kept() -> None:
    [event] = await told(chunks(*[b"<" * LONGEST_LINE + b"\n"] * 200))
    assert event["first"] - 1 == 200 - KEPT_LETTERS // LONGEST_LINE
    tail = await read_tail(chunks(*[b"x" * LONGEST_LINE + b"\n"] * 200), lines=500, at_most=2**24)
    assert (len(tail.lines), tail.left_out) == (KEPT_LETTERS // LONGEST_LINE, event["first"] - 1)


async def test_others_are_served_while_a_log_full_of_colours_is_drawn() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await read_tail(chunks(*[b"\x1b[31m<" * 400 + b"\n"] * 300), lines=500, at_most=2**24)
    counting.cancel()
    assert turns > 10


async def test_an_empty_log_ends_at_once() -> None:
    [event] = await told(chunks())
    assert event == {"lines": [], "first": 1, "numbered": 0, "anew": True, "rest": "", "times": []}


async def test_a_line_that_has_not_ended_is_shown_in_its_last_state() -> None:
    more = asyncio.Event()

    async def log() -> AsyncGenerator[bytes]:
        yield b"\x1b[31mstart\n\r 1 %\r 2 %"
        await more.wait()
        yield b"\r 3 %\nend"

    events: list[dict[str, Any]] = []
    async for event in stream_lines(log()):
        if event.startswith(b"event: lines"):
            events.append(json.loads(event.split(b"data: ")[1]))
            more.set()
    red = '<span class="ansi-f1">{}</span>'
    assert (events[0]["lines"], events[0]["rest"]) == ([red.format("start")], red.format(" 2 %"))
    lines = [line for event in events[1:] for line in event["lines"]]
    assert lines == [red.format(" 3 %"), red.format("end")]
    assert (events[1]["first"], events[-1]["rest"]) == (2, "")


async def test_a_progress_bar_of_a_megabyte_is_one_line() -> None:
    states = b"".join(b"\r%7d of 100000" % number for number in range(70_000))
    parts = [states[at : at + 4096] for at in range(0, len(states), 4096)]
    tail = await read_tail(chunks(b"one\n", *parts, b"\nthree\n"), lines=9, at_most=2**24)
    assert tail.lines == ["one", "  69999 of 100000", "three"]
    assert (tail.first, tail.numbered) == (1, 3)


async def test_a_line_of_megabytes_is_cut_and_counts_as_one() -> None:
    tail = await read_tail(chunks(*[b"x" * 2**16] * 20, b"\nnext\n"), lines=9, at_most=2**24)
    assert [len(line) < LONGEST_LINE + 100 for line in tail.lines] == [True, True]
    assert (tail.lines[1], tail.numbered) == ("next", 2)


async def test_lines_after_omitted_output_have_no_number() -> None:
    tail = await read_tail(chunks(b"1\n2\n", OmittedOutput(99), b"later\n"), lines=3, at_most=1000)
    assert (tail.first, tail.numbered, len(tail.lines)) == (2, 1, 3)
    gang = await read_tail(chunks(b"1\n2\n"), lines=3, at_most=1000, numbered=False)
    assert gang.numbered == 0


async def test_the_html_of_a_log_of_nothing_but_colours_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2**19
    monkeypatch.setattr(log_tail, "MOST_HTML", most)
    line = b"".join(b"\x1b[%d;3%dmx" % (number % 5, number % 8) for number in range(499)) + b"\n"
    tail = await read_tail(chunks(*[line] * 60), lines=500, at_most=2**24)
    assert sum(map(len, tail.lines)) < 2 * most
    assert tail.lines[-1].endswith("x")


async def test_times_stand_beside_lines_and_what_a_job_prints_is_none() -> None:
    stamp = b"2026-11-26T13:20:05.123Z "
    log = chunks(
        stamp + b"one\n- two\n[1] " + stamp + b"three\n",
        stamp + b"2030-01-01T00:00:00.000Z printed\n",
        stamp + b"\x1b[31m 1 %\r 2 %" + b"x" * LONGEST_LINE + b"\r 3 %",
    )
    tail = await read_tail(log, lines=9, at_most=2**20, write_time=lambda at: at[11:19])
    assert tail.times == ["13:20:05", "", "13:20:05", "13:20:05", "13:20:05"]
    assert tail.lines[:4] == ["one", "two", "[1] three", "2030-01-01T00:00:00.000Z printed"]
    assert tail.lines[4].endswith(" 3 %")
    untimed = await read_tail(chunks(b"- dash\n"), lines=9, at_most=99)
    assert (untimed.lines, untimed.times) == (["- dash"], [""])


async def test_omitted_output_ends_numbers_in_a_log_with_times_too() -> None:
    omitted = OmittedOutput(9, prefix="- ")
    tail = await read_tail(chunks(b"- 1\n", omitted), lines=9, at_most=999, write_time=str)
    assert (tail.numbered, tail.lines[1][:8]) == (1, "gpu-dev:")
