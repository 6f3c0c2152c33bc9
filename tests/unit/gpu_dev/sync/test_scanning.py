"""Folders are scanned as Git would take them, unchanged files are not read again, and entries can be written out."""

import os
import shutil
import socket
import subprocess
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.errors import UsageError
from gpu_dev.sync import folder_files, scanning
from gpu_dev.sync.folder_files import read_chunks, write_entries
from gpu_dev.sync.scanning import scan
from reservation_core.domain.sync.folders import EntryKind, FolderEntry
from tests.examples import examples

NAMES = st.sampled_from(["a", "b.log", "größe", "日本", "x y", "-n", "'q'", "*.py", "e\u0301"])
SIZES = st.sampled_from([0, 1, 9, 10, 11, 25])


def data_of(root: Path, entries: list[FolderEntry]) -> list[tuple[bytes, bytes]]:
    """The different chunks of a folder in the order of entries, as a server sends them."""
    found: dict[bytes, bytes] = {}
    for entry in entries:
        if entry.kind is EntryKind.FILE:
            for chunk in read_chunks(root / entry.path, entry.size):
                found.setdefault(sha256(chunk).digest(), chunk)
    return list(found.items())


def looked_at(root: Path) -> dict[str, tuple[str, object]]:
    """Everything below a folder, as the file system has it."""
    found: dict[str, tuple[str, object]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = ("folder", None)
        else:
            found[name] = ("file", (path.read_bytes(), os.access(path, os.X_OK)))
    return found


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, str, int, bool]]:
    paths = draw(st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=8, unique=True))
    return [
        (path, draw(st.sampled_from(["file", "folder", "link"])), draw(SIZES), draw(st.booleans())) for path in paths
    ]


def make(root: Path, tree: list[tuple[str, str, int, bool]]) -> None:
    for path, kind, size, executable in tree:
        place = root / path
        if place.is_symlink() or place.exists():
            continue
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            continue
        if place.parent.resolve() != place.parent:
            continue  # behind a link
        if kind == "folder":
            place.mkdir()
        elif kind == "link":
            place.symlink_to("../" * path.count("/") + "a")
        else:
            place.write_bytes((path.encode() * 25)[:size])
            place.chmod(0o755 if executable else 0o644)


@given(trees())
def test_a_folder_is_written_out_as_it_was(tree: list[tuple[str, str, int, bool]]) -> None:
    with (
        TemporaryDirectory() as made,
        patch.object(folder_files, "CHUNK_BYTES", 10),
        patch("reservation_core.domain.sync.folders.CHUNK_BYTES", 10),
    ):
        root, copy = Path(made).resolve() / "root", Path(made).resolve() / "copy"
        root.mkdir()
        copy.mkdir()
        make(root, tree)
        entries = scan(root, None)
        write_entries(copy, entries, data_of(root, entries))
        assert looked_at(copy) == looked_at(root)
        # Over what is there already, and over something else.
        write_entries(copy, entries, data_of(root, entries))
        assert looked_at(copy) == looked_at(root)


PATTERNS = st.sampled_from(
    ["*.log", "/a", "a/", "!a", "b*", "**/a", "a/**", "!b.log", "#x", "\\#x", "", "a/b.log", "*", "!*/", "/*/a", "a "]
)
GIT_PATHS = st.lists(st.sampled_from(["a", "b.log", "c", "#x"]), min_size=1, max_size=3).map("/".join)


@pytest.mark.skipif(shutil.which("git") is None, reason="Git says what is right")
@given(
    st.lists(GIT_PATHS, min_size=1, max_size=8, unique=True),
    st.dictionaries(st.sampled_from([".gitignore", "a/.gitignore"]), st.lists(PATTERNS, max_size=4)),
)
@examples(60)
def test_git_would_take_the_same_files(paths: list[str], ignores: dict[str, list[str]]) -> None:
    with TemporaryDirectory() as made:
        root = Path(made)
        for path, lines in [*((path, ["x"]) for path in paths), *ignores.items()]:
            try:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text("\n".join(lines) + "\n")
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue
        environ = {"PATH": os.environ["PATH"], "HOME": made, "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", "init", "-q"], cwd=root, env=environ, check=True)
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=root, env=environ, check=True, capture_output=True).stdout
        expected = {name for name in listed.decode().split("\0") if name}
        assert {entry.path for entry in scan(root, None) if entry.kind is EntryKind.FILE} == expected


def test_files_that_did_not_change_are_not_read_again(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    for name in ("a", "b", "c"):
        (root / name).write_text(name)
        os.utime(root / name, (1, 1))
    with patch.object(scanning, "_CLOCK_STEP_NS", -(10**12)):  # the files were made long before the first look
        first = scan(root, cache)
        (root / "b").write_text("B")
        (root / "c").chmod(0o755)
        read = []
        with patch.object(
            scanning, "read_entry", side_effect=lambda *one: read.append(one[1]) or folder_files.read_entry(*one)
        ):
            second = scan(root, cache)
    assert set(read) == {"b", "c"}
    assert second[0] == first[0]
    assert second[1].chunks != first[1].chunks
    assert second[2].executable


def test_a_file_that_was_just_changed_is_read_again(tmp_path: Path) -> None:
    """Its time says nothing yet: it may change once more within the clock's step."""
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    (root / "a").write_text("a")
    scan(root, cache)
    with (
        patch.object(scanning, "read_entry", wraps=folder_files.read_entry) as reading,
        patch.object(scanning, "_CLOCK_STEP_NS", 10**12),
    ):
        scan(root, cache)
    assert reading.call_count == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"files": {"a": 3}}', b"\xff"])
def test_a_broken_cache_is_no_cache(tmp_path: Path, content: bytes) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    (root / "a").write_text("a")
    expected = scan(root, cache)
    [file] = cache.iterdir()
    file.write_bytes(content)
    assert scan(root, cache) == expected


def test_what_can_not_be_sent_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match=r"out.*\.gitignore"):
        scan(tmp_path, None)
    (tmp_path / "out").unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(UsageError, match="socket is a device, a pipe or a socket"):
            scan(tmp_path, None)
    (tmp_path / "socket").unlink()
    (tmp_path / os.fsdecode(b"\xff")).touch()
    with pytest.raises(UsageError, match="UTF-8"):
        scan(tmp_path, None)


def test_links_in_the_way_are_replaced_and_not_followed(tmp_path: Path) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    elsewhere.mkdir()
    root.mkdir()
    (elsewhere / "x").write_text("theirs")
    (root / "a").symlink_to(elsewhere)
    (root / "b").symlink_to(elsewhere / "x")
    (root / "c").mkdir()
    digest = sha256(b"new").digest()
    entries = [FolderEntry(name, EntryKind.FILE, 3, chunks=(digest.hex(),)) for name in ("a/x", "b", "c")]
    write_entries(root, entries, [(digest, b"new")])
    assert (elsewhere / "x").read_text() == "theirs"
    assert [(root / name).read_text() for name in ("a/x", "b", "c")] == ["new"] * 3


def test_a_folder_with_something_in_it_is_not_removed_for_a_file(tmp_path: Path) -> None:
    """It may have what was never sent."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "ignored.log").touch()
    for entry in (FolderEntry("src", EntryKind.FILE), FolderEntry("src", EntryKind.LINK, target="x")):
        with pytest.raises(OSError, match="not empty"):
            write_entries(tmp_path, [entry], [])
    assert [path.name for path in (tmp_path / "src").iterdir()] == ["ignored.log"]
