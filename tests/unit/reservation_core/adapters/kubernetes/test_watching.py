"""The lines of a watch, however its bytes arrive."""

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.watching import LineSplitter


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.integers(1, 30))
def test_lines_come_whole_and_an_unfinished_one_not_at_all(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b'{"type": "MODI'
    splitter, found = LineSplitter(), []
    for at in range(0, len(stream), size):
        found += splitter.feed(stream[at : at + size])
    assert found == [line for line in lines if line.strip()]
