"""Parts of a log and lines that hold a text: by their numbers, in bounded memory."""

from collections.abc import AsyncGenerator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_service.web.jobs.ansi_text import LONGEST_LINE, TerminalLines, plain_texts
from api_service.web.jobs.log_search import AFTER, BEFORE, MOST_FOUND, find_lines, read_part
from api_service.web.jobs.log_tail import KEPT_LETTERS, read_tail
from reservation_core.ports.cluster import OmittedOutput

LOG = b"".join(b"line %d\n" % number for number in range(1, 5001))


async def chunks(*parts: bytes) -> AsyncGenerator[bytes]:
    for part in parts:
        yield part


def split(log: bytes, size: int) -> list[bytes]:
    return [log[at : at + size] for at in range(0, len(log), size)]


@pytest.mark.parametrize("size", [1, 7, 4096, 2**20])
@pytest.mark.parametrize("line", [1, 2, BEFORE, BEFORE + 1, BEFORE + 2, 2500, 4999, 5000])
async def test_lines_around_one(line: int, size: int) -> None:
    found = await read_part(chunks(*split(LOG, size)), line)
    first, last = max(1, line - BEFORE), min(5000, line + AFTER)
    assert (found.tail.first, found.tail.numbered) == (first, last - first + 1)
    assert found.tail.lines == [f"line {number}" for number in range(first, last + 1)]


async def test_a_line_that_is_not_there_yet() -> None:
    found = await read_part(chunks(LOG, b"unfinished"), 5002)
    assert (found.tail.lines, found.last) == ((), 5001)
    assert (await read_part(chunks(), 1)).last == 0


async def test_a_part_of_long_lines_has_the_wanted_one_and_is_bounded() -> None:
    long = [b"%04d" % number + b"x" * LONGEST_LINE + b"\n" for number in range(1, 1000)]
    found = await read_part(chunks(*long), 500)
    numbers = [int(text[:4]) for text in found.tail.lines]
    assert numbers == list(range(found.tail.first, found.tail.first + len(numbers)))
    assert 500 in numbers
    assert sum(map(len, found.tail.lines)) < 2 * KEPT_LETTERS


async def test_numbers_end_where_output_was_not_kept() -> None:
    log = (b"1\n2\n", OmittedOutput(9), b"error\n")
    assert (await read_part(chunks(*log), 2)).tail.lines == ["1", "2"]
    assert (await read_part(chunks(*log), 4)).last == 2
    assert (await find_lines(chunks(*log), "error")).numbers == []


@given(st.lists(st.text("ab\x1b[1m\r\n", max_size=12), max_size=20), st.integers(0, 99))
async def test_numbers_are_those_of_the_whole_log(parts: list[str], seed: int) -> None:
    log = "\n".join(parts).encode()
    random = Random(seed)
    pieces = split(log, random.randint(1, 9))
    tail = await read_tail(chunks(log), lines=1000, at_most=2**20)
    found = await find_lines(chunks(*pieces), "A")
    assert found.numbers == [
        number
        for number, line in enumerate(tail.lines, 1)
        if "a" in line.replace("span", "").replace("class=", "").replace("ansi-", "")
    ]
    for number in range(1, len(tail.lines) + 1):
        assert len((await read_part(chunks(*pieces), number)).tail.lines) == len(tail.lines)


async def test_a_text_is_found_in_any_case_and_whatever_its_looks() -> None:
    log = "Ärger\n\x1b[31mER\x1b[0mROR\nerror 1\rdone\nnothing\n…ERROR".encode()
    assert (await find_lines(chunks(*split(log, 3)), "error")).numbers == [2, 5]
    assert (await find_lines(chunks(log), "ärger")).numbers == [1]


@given(st.lists(st.text("ab\x1b[1mGK]()\r\b\x07\x00\tΣ/\\", max_size=14), min_size=1, max_size=4))
def test_plain_texts_are_what_a_terminal_shows(lines: list[str]) -> None:
    assert plain_texts(lines).split("\n") == [TerminalLines().text(line) for line in lines]


async def test_a_search_that_is_given_up_reads_no_further() -> None:
    read = 0

    async def log() -> AsyncGenerator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"match\n"

    async def is_given_up() -> bool:
        return read == 3

    assert (await find_lines(log(), "match", is_given_up)).last == 3
    assert read == 3


async def test_of_very_many_lines_the_first_are_named_and_all_are_counted() -> None:
    found = await find_lines(chunks(*[b"match\n" * 1000] * 10), "match")
    assert (len(found.numbers), found.count, found.last) == (MOST_FOUND, 10_000, 10_000)
