"""Terminal output as HTML: escaped, coloured, bounded, and in its last state."""

import re
import time
from html import unescape

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api_service.web.jobs.ansi_text import LONGEST_LINE, MOST_CHANGES, TerminalLines, last_state

TAG = re.compile(r'<span class="ansi-[a-z0-9 -]*"(?: data-[fg]="[0-9a-f]{6}")*>|</span>')


def looks(line: str) -> str:
    """The classes of the first span of a line."""
    found = re.search(r'class="([^"]*)"', TerminalLines().html(line))
    return "" if found is None else found[1]


def test_colours_are_classes_and_stay_until_they_are_taken_back() -> None:
    terminal = TerminalLines()
    assert terminal.html("\x1b[1;31mno\x1b[0m <b>") == '<span class="ansi-f1 ansi-bold">no</span> &lt;b&gt;'
    assert terminal.html("\x1b[32mgreen") == '<span class="ansi-f2">green</span>'
    assert terminal.html("still") == '<span class="ansi-f2">still</span>'
    assert terminal.html("\x1b[4m<b title='&'>").endswith(">&lt;b title=&#x27;&amp;&#x27;&gt;</span>")
    assert TerminalLines().html("\x1b]0;a title\x07text") == "text"


@pytest.mark.parametrize(
    ("sequence", "classes"),
    [
        ("38;5;208", "ansi-f208"),
        ("48;5;17", "ansi-g17"),
        ("38:5:208", "ansi-f208"),
        ("48:5:17", "ansi-g17"),
        ("1;38;5;9;48;5;10;3", "ansi-f9 ansi-g10 ansi-bold ansi-italic"),
        ("38;2;255;0;0", "ansi-f196"),
        ("38:2:255:0:0", "ansi-f196"),
        ("38:2::255:0:0", "ansi-f196"),
        ("48;2;128;128;128", "ansi-g244"),
        ("95;104", "ansi-f13 ansi-g12"),
        ("2;4;7;9", "ansi-dim ansi-underline ansi-inverse ansi-strike"),
        ("1;2;22;3;23;4;24;7;27;9;29", ""),
        ("4:3", "ansi-underline"),
        ("4;4:0", ""),
        ("31;39;41;49", ""),
        ("31;1;", ""),
        ("58;5;200;31", "ansi-f1"),
        ("58;2;1;1;1;31", "ansi-f1"),
        ("38;5;256;1", "ansi-bold"),
        ("38;2;256;0;0;1", "ansi-bold"),
        ("38;5", "ansi-f0"),
        ("38", ""),
        ("38:5", ""),
        ("38;2;1;2", "ansi-f16"),
        ("77;1", "ansi-bold"),
    ],
)
def test_sequences_and_their_looks(sequence: str, classes: str) -> None:
    assert looks(f"\x1b[{sequence}mtext") == classes


def test_a_true_colour_is_kept_beside_the_nearest_of_the_256() -> None:
    shown = TerminalLines().html("\x1b[38;2;255;100;50;48:2::1:2:3mtext")
    assert shown == '<span class="ansi-f203 ansi-g16" data-f="ff6432" data-g="010203">text</span>'


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("10 %\r20 %", "20 %"),
        ("10 %\r20 %\r", "20 %"),
        ("\x1b[2K\x1b[1G\x1b[31mred\x1b[0K \x1b(Band\x1b]8;;x\x1b\\ so\x1b[0m on\x1b", "red and so on"),
        ("a\x1b[Gb", "b"),
        ("|\b/\b-", "-"),
        ("\b\bx", "x"),
        ("tab\tbell\x07 c1\x9b", "tab\tbell c1"),
    ],
)
def test_a_line_is_shown_in_its_last_state(printed: str, shown: str) -> None:
    assert TerminalLines().text(printed) == shown


def test_looks_of_text_that_was_overwritten_stay() -> None:
    assert TerminalLines().html("\x1b[31m10 %\r20 %") == '<span class="ansi-f1">20 %</span>'


def test_an_unfinished_line_changes_nothing() -> None:
    terminal = TerminalLines()
    assert terminal.unfinished("\x1b[31mhalf") == '<span class="ansi-f1">half</span>'
    assert terminal.html("whole") == "whole"


@pytest.mark.parametrize(
    ("line", "state"), [(b"1\r2", b"2"), (b"1\r2\r", b"2\r"), (b"1", b"1"), (b"\r\r", b"\r\r"), (b"", b"")]
)
def test_the_last_state_of_bytes(line: bytes, state: bytes) -> None:
    assert last_state(line).strip(b"\r") == state.strip(b"\r")


@given(st.binary(max_size=300))
@example(b"\x1b[38;2;;;m\x1b[38:::m\x1b[38;5;5:5m")
def test_any_bytes_become_text_and_spans_alone(printed: bytes) -> None:
    line = printed.decode("utf-8", "replace").replace("\n", " ")
    shown = TerminalLines().html(line)
    without = TAG.sub("", shown)
    assert "<" not in without
    assert ">" not in without
    assert shown.count("<span") == shown.count("</span>")
    assert unescape(without) == TerminalLines().text(line)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=300), st.data())
def test_text_is_whole_whatever_its_looks(text: str, data: st.DataObject) -> None:
    codes = st.lists(st.integers(0, 110) | st.sampled_from(["38;5;1", "48:2::9:9:9", ""]), max_size=4)
    at = data.draw(st.integers(0, len(text)))
    sequence = "\x1b[" + ";".join(map(str, data.draw(codes))) + "m"
    shown = TerminalLines().html(text[:at] + sequence + text[at:])
    assert unescape(TAG.sub("", shown)) == text


@given(
    st.lists(
        st.sampled_from(["\x1b", "[", "]", "(", "1", ";", ":", "38", "m", "K", "\x07", "x", "\r", "\b"]), max_size=80
    )
)
def test_no_sequence_is_shown(parts: list[str]) -> None:
    shown = TerminalLines().text("".join(parts))
    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", shown)


@pytest.mark.parametrize("told", ["9" * 5000, "38;5;" + "1" * 4999, "0;" * 4000, ":" * 5000])
def test_a_sequence_of_thousands_of_digits_is_none(told: str) -> None:
    assert TerminalLines().html(f"\x1b[{told}mtext") == "text"


def test_a_long_line_is_cut_and_its_changes_of_looks_are_bounded() -> None:
    assert len(TerminalLines().html("x" * (LONGEST_LINE * 3))) < LONGEST_LINE + 100
    colourful = "".join(f"\x1b[38;5;{number % 256}mx" for number in range(1000))
    assert TerminalLines().html(colourful).count("<span") == MOST_CHANGES


@pytest.mark.parametrize("part", ["\x1b]", "\x1b[", "\x1b[38;5;1m", "\x1b[38:2::1:1:1mx", "\r", "x\b", "\x1b("])
def test_hostile_lines_take_linear_time(part: str) -> None:
    begin = time.process_time()
    TerminalLines().html(part * (LONGEST_LINE // len(part)))
    assert time.process_time() - begin < 1
