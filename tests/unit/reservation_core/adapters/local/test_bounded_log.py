"""A log that keeps its head and its newest end: what is there, what is left out, and what a reader sees meanwhile."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.local import bounded_log, log_reading
from reservation_core.adapters.local.bounded_log import SMALLEST_LIMIT, BoundedLog
from reservation_core.adapters.local.log_trimming import fair_limit
from reservation_core.ports.cluster import OmittedOutput

LIMIT = SMALLEST_LIMIT


class Reader:
    """Follows a log; `seen` is what the pod printed, with a hole (None) where something was left out."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.place = 0
        self.pieces: list[tuple[int, bytes]] = []
        self.text = b""
        self.left_out = 0

    def read(self) -> None:
        while chunk := log_reading.read_from(self._log, self.place, self.text[-1:] in (b"", b"\n")):
            self.text += chunk
            if isinstance(chunk, OmittedOutput):
                self.place += chunk.left_out
                self.left_out += chunk.left_out
            else:
                self.pieces.append((self.place, chunk))
                self.place += len(chunk)


def printed_lines(count: int, width: int = 60) -> bytes:
    return b"".join(b"%0*d\n" % (width, number) for number in range(count))


def written(folder: Path, parts: list[bytes], limit: int = LIMIT) -> Path:
    log = BoundedLog(str(folder / "x.log"), limit)
    for part in parts:
        log.write(part)
    log.close()
    return folder / "x.log"


@given(
    parts=st.lists(st.binary(min_size=1, max_size=9000) | st.integers(1, 400).map(printed_lines), max_size=30),
    reads=st.sets(st.integers(0, 30)),
)
def test_what_is_kept_is_what_was_printed_and_never_more_than_the_bound(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], reads: set[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "x.log"
    log, follower, whole = BoundedLog(str(path), LIMIT), Reader(path), b""
    for number, part in enumerate(parts):
        log.write(part)
        whole += part
        assert log_reading.size_and_time(path)[0] <= LIMIT
        if number in reads:
            follower.read()
    log.close()
    late = Reader(path)
    for reader in (follower, late):
        reader.read()
        assert reader.place == len(whole)
        assert all(whole[start : start + len(piece)] == piece for start, piece in reader.pieces)
        assert sum(len(piece) for _, piece in reader.pieces) + reader.left_out == len(whole)
    if len(whole) <= LIMIT // 2:
        assert late.text == whole
    else:
        # Of the end an eighth less than three at the least: a segment is removed before the next begins.
        assert late.pieces[-1][1].endswith(whole[-1:])
        assert sum(len(piece) for _, piece in late.pieces) >= min(len(whole), LIMIT // 4)


def test_a_log_is_cut_between_lines_and_says_how_much_is_left_out(tmp_path: Path) -> None:
    whole = printed_lines(5000)
    reader = Reader(written(tmp_path, [whole[at : at + 7777] for at in range(0, len(whole), 7777)]))
    reader.read()
    lines = reader.text.decode().splitlines()
    [cut] = [line for line in lines if line.startswith("gpu-dev: ")]
    assert cut == (f"gpu-dev: {reader.left_out} bytes of output are left out here: the log had reached its size limit.")
    kept = [line for line in lines if line != cut]
    assert set(kept) <= set(whole.decode().splitlines())
    assert kept[0] == f"{0:060d}"
    assert kept[-1] == f"{4999:060d}"
    assert len(kept) * 61 + reader.left_out == len(whole)


def test_lines_longer_than_a_file_are_not_cut_within_a_character(tmp_path: Path) -> None:
    reader = Reader(written(tmp_path, ["ä€".encode() * 20_000]))
    reader.read()
    text = reader.text.decode()
    assert text.count("\ngpu-dev: ") == 1


def test_a_short_log_is_one_file(tmp_path: Path) -> None:
    path = written(tmp_path, [b"one\n", b"two\n"])
    assert path.read_bytes() == b"one\ntwo\n"
    assert os.listdir(tmp_path) == ["x.log"]  # noqa: PTH208


def test_no_bound_keeps_everything(tmp_path: Path) -> None:
    whole = printed_lines(5000)
    assert written(tmp_path, [whole], limit=0).read_bytes() == whole


def test_a_lower_bound_cuts_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    whole = printed_lines(20_000)
    log = BoundedLog(str(path), 40 * LIMIT)
    log.write(whole)
    follower = Reader(path)
    follower.read()
    log.lower_limit(LIMIT)
    assert log_reading.size_and_time(path)[0] <= LIMIT
    log.lower_limit(2 * LIMIT)
    log.write(whole)
    log.close()
    assert log_reading.size_and_time(path)[0] <= LIMIT
    late = Reader(path)
    for reader in (follower, late):
        reader.read()
        assert reader.place == 2 * len(whole)
        assert reader.text.endswith(f"{19_999:060d}\n".encode())


def test_what_a_full_disk_does_not_take_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.log"
    log = BoundedLog(str(path), LIMIT)
    log.write(b"before\n")
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 3:
            return real(fd, data[:3])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(bounded_log.os, "write", full)
        for _ in range(100):
            log.write(b"lost\n")
    log.write(b"after\n")
    log.close()
    reader = Reader(path)
    reader.read()
    assert reader.text.startswith(b"before\nlos")
    assert reader.text.endswith(b"size limit.\nafter\n")
    assert reader.place == len(b"before\n") + 500 + len(b"after\n")


@pytest.mark.parametrize("lines", [0, 1, 3, 60, 100_000])
def test_the_last_lines_are_found_across_files(tmp_path: Path, lines: int) -> None:
    whole = printed_lines(1000)
    path = written(tmp_path, [whole])
    place = log_reading.last_lines(path, lines)
    rest = Reader(path)
    rest.place = place
    rest.read()
    assert rest.left_out == 0
    assert rest.text.splitlines() == whole.splitlines()[-len(rest.text.splitlines()) :] or lines == 0
    assert len(rest.text.splitlines()) == lines or lines == 100_000


@given(sizes=st.lists(st.integers(0, 1000), max_size=20), most=st.integers(0, 5000))
def test_one_bound_makes_all_of_them_fit_and_wastes_nothing(sizes: list[int], most: int) -> None:
    limit = fair_limit(sizes, most)
    kept = [min(size, limit) for size in sizes]
    assert sum(kept) <= max(most, 0) or sum(sizes) <= most
    if sum(sizes) > most:
        assert sum(min(size, limit + 1) for size in sizes) > most


def test_what_is_no_text_is_cut_anywhere(tmp_path: Path) -> None:
    """Bytes that only go on a character, without a line's end: there is no good place."""
    log = written(tmp_path, [b"\x80" * 100_000])
    assert log.stat().st_size + sum(part.stat().st_size for part in Path(f"{log}.d").iterdir()) <= LIMIT


def test_two_lower_limits_with_nothing_between_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = BoundedLog(str(path), 4 * LIMIT)
    log.write(printed_lines(3000))
    log.lower_limit(2 * LIMIT)
    log.lower_limit(LIMIT)
    for _ in range(8):
        log.write(printed_lines(40))
    log.close()
    names = [part.name for part in Path(f"{path}.d").iterdir()]
    kept = sum(part.stat().st_size for part in Path(f"{path}.d").iterdir())
    assert names
    assert LIMIT // 8 <= kept <= LIMIT
