"""A log for a page: escaped, coloured, bounded, and as it comes."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.ansi import AnsiDecoder

from api_service.web.jobs.ansi_text import LONGEST_LINE, TerminalLines
from api_service.web.jobs.log_tail import KEPT_LETTERS, KEPT_LINES, read_tail, stream_lines


def test_colours_are_classes_and_stay_until_they_are_taken_back() -> None:
    terminal = TerminalLines()
    assert terminal.html("\x1b[1;31mno\x1b[0m <b>") == '<span class="ansi-f1 ansi-bold">no</span> &lt;b&gt;'
    assert terminal.html("\x1b[32mgreen") == '<span class="ansi-f2">green</span>'
    assert terminal.html("still") == '<span class="ansi-f2">still</span>'
    assert TerminalLines().html("\x1b]0;a title\x07text") == "text"
    assert TerminalLines().html("10 %\r20 %") == "20 %"


@given(st.text())
def test_nothing_printed_becomes_a_tag(text: str) -> None:
    shown = TerminalLines().html(text.replace("\n", " "))
    without = shown.replace("</span>", "")
    assert without.count("<") == without.count('<span class="ansi-')


def test_a_line_longer_than_any_is_cut() -> None:
    assert len(TerminalLines().html("x" * (LONGEST_LINE * 3))) < LONGEST_LINE + 100


@pytest.mark.parametrize("told", ["9" * 5000, "38;5;" + "1" * 4999, "0;" * 4000])
def test_a_colour_of_thousands_of_digits_is_none(told: str) -> None:
    assert TerminalLines().html(f"\x1b[{told}mtext") == "text"


@given(
    st.lists(st.sampled_from(["\x1b", "[", "]", "(", "1", ";", "m", "K", "?", "\\", "\x07", "x", "\r"]), max_size=60)
)
@example(["\x1b", "\x1b", "]", "\x07", "]"])
def test_the_decoder_is_given_nothing_but_looks(parts: list[str]) -> None:
    """It looks through the rest of a line for each title's end: a line of beginnings costs the square of its length."""
    with patch.object(AnsiDecoder, "decode_line", autospec=True, side_effect=AnsiDecoder.decode_line) as decode:
        TerminalLines().html("".join(parts))
    [(_, line)] = [call.args for call in decode.call_args_list]
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;]{0,50}m", "", line)


def test_what_moves_a_cursor_is_left_out_and_colours_around_it_stay() -> None:
    terminal = TerminalLines()
    assert terminal.html("\x1b[2K\x1b[1G\x1b[31mred\x1b[0K \x1b(Band\x1b]8;;x\x1b\\ so\x1b[0m on\x1b") == (
        '<span class="ansi-f1">red and so</span> on'
    )


async def chunks(*parts: bytes) -> AsyncGenerator[bytes]:
    for part in parts:
        yield part


async def test_the_end_of_a_log() -> None:
    tail = await read_tail(chunks(b"a\nb", b"b\nc\r\n", b"d"), lines=3, at_most=1000)
    assert (tail.lines, tail.left_out, tail.goes_on) == (["bb", "c", "d"], 1, False)
    tail = await read_tail(chunks(b"x\n", b"y\n", b"z\n"), lines=9, at_most=1)
    assert (tail.lines, tail.goes_on) == (["x"], True)


async def told(log: AsyncGenerator[bytes]) -> list[dict[str, object]]:
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

    events: list[dict[str, object]] = []
    async for event in stream_lines(log()):
        if event.startswith(b"event: lines"):
            events.append(json.loads(event.split(b"data: ")[1]))
            (second if first.is_set() else first).set()
    assert [line for event in events for line in event["lines"]] == ["one", "two", "three", "four"]  # type: ignore[attr-defined]
    assert [event["anew"] for event in events][:2] == [True, False]


async def test_of_a_long_log_the_end_is_told_and_how_much_is_not() -> None:
    lines = b"".join(b"%d\n" % number for number in range(KEPT_LINES + 7))
    [event] = await told(chunks(lines))
    assert event["left_out"] == 7
    assert len(event["lines"]) == KEPT_LINES  # type: ignore[arg-type]


async def test_of_long_lines_fewer_are_kept() -> None:
    [event] = await told(chunks(*[b"<" * LONGEST_LINE + b"\n"] * 200))
    assert event["left_out"] == 200 - KEPT_LETTERS // LONGEST_LINE
    tail = await read_tail(chunks(*[b"x" * LONGEST_LINE + b"\n"] * 200), lines=500, at_most=2**24)
    assert (len(tail.lines), tail.left_out) == (KEPT_LETTERS // LONGEST_LINE, event["left_out"])


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
    assert event == {"lines": [], "left_out": 0, "anew": True}
