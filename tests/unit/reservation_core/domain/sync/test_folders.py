"""Lists of folders: hostile ones are refused, and what is accepted stays in its folder on a real file system."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dev.sync.folder_files import write_entries
from reservation_core.domain.sync.folders import (
    CHUNK_BYTES,
    EntryKind,
    FolderEntry,
    content_bytes,
    entry_of,
    fault_of_entries,
    fault_of_entry,
    fields_of,
    stand_together,
)
from reservation_core.domain.sync.job_sync import fault_of_fetched, fault_of_kept
from tests.examples import examples

D = "0" * 64


def file(path: str) -> FolderEntry:
    return FolderEntry(path, EntryKind.FILE)


def link(path: str, target: str) -> FolderEntry:
    return FolderEntry(path, EntryKind.LINK, target=target)


def folder(path: str) -> FolderEntry:
    return FolderEntry(path, EntryKind.FOLDER)


HOSTILE: dict[str, list[FolderEntry]] = {
    "absolute": [file("/etc/passwd")],
    "up": [file("../x")],
    "up in the middle": [file("a/../../x")],
    "here": [file("./x")],
    "empty part": [file("a//x")],
    "slash at the end": [folder("a/")],
    "no path": [file("")],
    "only up": [folder("..")],
    "NUL": [file("a\0b")],
    "line break": [file("a\nb")],
    "half a surrogate pair": [file("a\ud800")],
    "too long": [file("a/" * 600 + "a")],
    "part too long": [file("a" * 256)],
    "twice": [file("a"), file("a")],
    "file and folder": [file("a"), folder("a")],
    "case": [file("Makefile"), file("makefile")],
    "case of a folder": [file("A/x"), file("a/y")],
    "case of a link's folder": [link("A", "b"), file("a/x")],
    "sharp s": [file("straße"), file("STRASSE")],
    "forms of Unicode": [file("\u00e9"), file("e\u0301")],
    "in a file": [file("a"), file("a/b")],
    "behind a link": [link("a", "b"), file("a/x"), folder("b")],
    "behind a link, before it": [file("a/x"), link("a", "b")],
    "link to the root": [link("a", "/")],
    "link up": [link("a", "..")],
    "link up from below": [link("a/b", "../../x")],
    "link that goes up later": [link("a/b", "c/../../../x")],
    "links that lead up together": [link("e/f/g", "../.."), link("x", "e/f/g/../..")],
    "link to nothing": [link("a", "")],
    "link with NUL": [link("a", "b\0")],
    "more chunks than bytes": [FolderEntry("a", EntryKind.FILE, 1, chunks=(D, D))],
    "fewer chunks than bytes": [FolderEntry("a", EntryKind.FILE, CHUNK_BYTES + 1, chunks=(D,))],
    "file with a target": [FolderEntry("a", EntryKind.FILE, target="b")],
    "folder with chunks": [FolderEntry("a", EntryKind.FOLDER, 1, chunks=(D,))],
    "executable link": [FolderEntry("a", EntryKind.LINK, executable=True, target="b")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_list_is_refused(name: str) -> None:
    fault = fault_of_entries(HOSTILE[name])
    assert fault is not None
    assert fault.isprintable()


def test_an_ordinary_list_is_not() -> None:
    entries = [
        folder("empty"), file("a b/größe.txt"), file("…"), link("a b/up", "../empty"), link("l", "./a b/größe.txt"),
        link("dangling", "nothing"), link("a b/here", "."), link("a b/root", ".."), file("a.b"), file("a-b/.x"),
    ]  # fmt: skip
    assert fault_of_entries(entries) is None


def test_a_chunk_that_is_named_often_counts_as_often() -> None:
    """A few bytes of list can't become a disk of files unnoticed."""
    bomb = FolderEntry("a", EntryKind.FILE, CHUNK_BYTES * 1000, chunks=(D,) * 1000)
    assert fault_of_entries([bomb]) is None
    assert content_bytes([bomb]) == CHUNK_BYTES * 1000


@pytest.mark.parametrize("path", ["/x", "..", "a/../b", "", "a\0", "a//b"])
def test_hostile_paths_can_not_be_fetched(path: str) -> None:
    assert fault_of_fetched([path]) is not None
    assert fault_of_fetched([".", "out/x"]) is None
    assert fault_of_fetched(["a", "a"]) is not None


def test_a_link_that_goes_up_later_is_told_where_it_may() -> None:
    fault = fault_of_entry(link("a/b", "c/../x"))
    assert fault is not None
    assert "`..` at its beginning only" in fault


PARTS = st.sampled_from(["a", "b", "A", "é", "e\u0301", "..", "."])
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
ENTRIES = st.lists(
    st.one_of(PATHS.map(file), PATHS.map(folder), st.builds(link, PATHS, st.one_of(PATHS, PATHS.map("/{}".format)))),
    max_size=6,
)


@given(ENTRIES)
@examples(400)
def test_entries_that_stand_together_have_no_fault(entries: list[FolderEntry]) -> None:
    sound = list({entry.path: entry for entry in entries if fault_of_entry(entry) is None}.values())
    kept, faults = stand_together(sound)
    assert fault_of_entries(kept) is None
    assert len(kept) + len(faults) == len(sound)
    assert (faults == []) == (fault_of_entries(sound) is None)


@given(ENTRIES)
@examples(400)
def test_what_is_accepted_stays_in_its_folder(entries: list[FolderEntry]) -> None:
    """Written out for real, every path leads to a place in the folder, through all links."""
    if fault_of_entries(entries) is not None:
        return
    with TemporaryDirectory() as made:
        root = Path(made).resolve() / "outer" / "root"
        root.mkdir(parents=True)
        write_entries(root, entries, [])
        assert [path.name for path in root.parent.iterdir()] == ["root"]
        for entry in entries:
            try:
                found = (root / entry.path).resolve(strict=False)
            except (OSError, RuntimeError):  # links in a circle
                continue
            assert found == root or root in found.parents


@given(ENTRIES)
def test_json_has_all_of_an_entry(entries: list[FolderEntry]) -> None:
    assert [entry_of(fields_of(entry)) for entry in entries] == entries


@pytest.mark.parametrize(
    "path", ["x", "outer/x", "out.txt", ".git/config", "out/.GIT/hooks/x", "out/.g\u200cit", "src"]
)
def test_a_job_keeps_what_was_asked_for_and_nothing_of_git(path: str) -> None:
    asked = [file("out"), file("out/x/y"), file("src/a"), file("out/.gitignore"), file("out/.github/x")]
    assert fault_of_kept(["out", "src/a"], asked) is None
    assert fault_of_kept(["out", "src/a"], [*asked, file(path)]) is not None
    assert (fault_of_kept(["."], [file(path)]) is None) == ("g" not in path.casefold())
