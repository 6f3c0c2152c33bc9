"""The last lines of an output, as `gpu-dev logs --tail` prints them."""

from time import process_time

import pytest

from gpu_dev.commands.jobs.logs import last_lines


@pytest.mark.parametrize(
    ("chunks", "count", "printed"),
    [
        ([b"a\nb\n", b"c", b"d\n"], 2, b"b\ncd\n"),
        ([b"a\n", b"b", b"", b"c"], 2, b"a\nbc"),
        ([b"a", b"\n", b"b\n"], 5, b"a\nb\n"),
        ([b"a\nb"], 0, b""),
        ([], 3, b""),
    ],
)
def test_the_last_lines_are_printed_however_the_output_comes(chunks: list[bytes], count: int, printed: bytes) -> None:
    assert b"".join(last_lines(chunks, count)) == printed


def test_a_progress_bar_of_any_length_is_read_once() -> None:
    """It ends no line: with what came before copied for each chunk this took a minute."""
    begun = process_time()
    [bar] = last_lines((b"\r 50% of it" * 6_000 for _ in range(600)), 10)
    assert len(bar) == 600 * 6_000 * 11
    assert process_time() - begun < 5
