"""The list of what is in a folder: files as chunks by their SHA-256, links within the folder, and folders.

A list comes from a stranger. What it names must lie in the folder for whoever writes it out, in any order and on any
file system. Only the standard library is imported: jobs read lists with nothing else.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple
from unicodedata import category, normalize

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""The bytes of every chunk of a file but its last."""
MOST_ENTRIES: Final = 50_000
"""The most entries of a folder."""
LONGEST_PATH: Final = 1024
"""The most bytes of a path in UTF-8."""
LONGEST_PART: Final = 255
"""The most bytes of a part of a path in UTF-8."""
_UP = ".."


class EntryKind(StrEnum):
    """What an entry of a folder is. There are no devices, pipes and sockets."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"


class FolderEntry(NamedTuple):
    """One entry. A file has its `size`, the digests of its `chunks`, and the executable bit; a link has a `target`."""

    path: str
    kind: EntryKind
    size: int = 0
    executable: bool = False
    chunks: tuple[str, ...] = ()
    target: str = ""


def fault_of_path(path: str) -> str | None:
    """Why a path can't be in a folder; None where it can."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "has no UTF-8 form"
    if not path or len(encoded) > LONGEST_PATH:
        return f"must have 1 to {LONGEST_PATH} bytes"
    if path.startswith("/"):
        return "must be relative to the folder"
    if not path.isprintable() and any(category(character) == "Cc" for character in path):
        return "must have no control characters"
    parts = path.split("/")
    if "" in parts or "." in parts or _UP in parts:
        return "must have no `.`, `..` and empty parts"
    if len(encoded) > LONGEST_PART and any(len(part.encode()) > LONGEST_PART for part in parts):
        return f"must have no part of more than {LONGEST_PART} bytes"
    return None


def fault_of_link(path: str, target: str) -> str | None:
    """Why a link can't be in a folder; None where it leads to a place in the folder, whatever else is there.

    `..` is at the beginning only: after a link, `x/..` is not where it was.
    """
    if not target or target.startswith("/"):
        return "must lead to a path that is relative"
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((place for place, part in enumerate(parts) if part != _UP), len(parts))
    rest = "/".join(parts[ups:])
    if ups > path.count("/") or _UP in parts[ups:]:
        return "must not leave the folder, and may have `..` at its beginning only"
    return fault_of_path(rest) if rest else None


def fault_of_entry(entry: FolderEntry) -> str | None:
    """The fault of an entry by itself; None where it has none."""
    if (fault := fault_of_path(entry.path)) is not None:
        return f"the path {entry.path[:100]!r} {fault}"
    match entry.kind:
        case EntryKind.FILE:
            if entry.target or len(entry.chunks) != -(-entry.size // CHUNK_BYTES):
                return f"the file {entry.path!r} must have a chunk for every {CHUNK_BYTES} bytes, and no target"
        case EntryKind.LINK:
            if entry.size or entry.chunks or entry.executable:
                return f"the link {entry.path!r} must have nothing but a target"
            if (fault := fault_of_link(entry.path, entry.target)) is not None:
                return f"the link {entry.path!r} {fault}"
        case EntryKind.FOLDER:
            if entry.size or entry.chunks or entry.executable or entry.target:
                return f"the folder {entry.path!r} must have nothing but a path"
    return None


def fault_of_entries(entries: Sequence[FolderEntry]) -> str | None:
    """The fault of a list of entries; None for one that everybody can write out.

    No two paths are one where upper and lower case, or forms of Unicode, are the same; and nothing lies in a file or
    behind a link.
    """
    names: dict[str, str] = {}
    leaves: set[str] = set()
    for entry in entries:
        if (fault := fault_of_entry(entry)) is not None:
            return fault
        if not _stands_alone(entry.path, names):
            return f"the path {entry.path!r} stands twice, or differs from another one in upper and lower case only"
        names[_folded(entry.path)] = entry.path
        if entry.kind is not EntryKind.FOLDER:
            leaves.add(entry.path)
    for entry in entries:
        for above in _above(entry.path):
            if above in leaves:
                return f"{entry.path!r} lies in {above!r}, which is no folder"
            if names.setdefault(_folded(above), above) != above:
                return f"the path {above!r} differs from another one in upper and lower case only"
    return None


def stand_together(entries: Sequence[FolderEntry]) -> tuple[list[FolderEntry], list[str]]:
    """Different entries, each without a fault, that can be in one folder, and why the others can't.

    Of two that differ in upper and lower case only, the first stays. Of a link and what is behind it, the link goes.
    """
    names: dict[str, str] = {}
    folders = {above for entry in entries for above in _above(entry.path)}
    kept, faults = [], []
    for entry in entries:
        way = {_folded(path): path for path in (entry.path, *_above(entry.path))}
        if entry.kind is not EntryKind.FOLDER and entry.path in folders:
            faults.append(f"{entry.path!r}, which is no folder, as something behind it is named, too")
        elif any(names.get(name, path) != path for name, path in way.items()):
            faults.append(f"the path {entry.path!r} differs from another one in upper and lower case only")
        else:
            names |= way
            kept.append(entry)
    return kept, faults


def is_of_git(path: str) -> bool:
    """Whether a path is in or is a folder `.git`: what is written there, Git executes for whoever uses it.

    Some file systems take no notice of upper and lower case, and of characters that nobody sees.
    """
    return any(_seen(part) == ".git" for part in path.split("/"))


def content_bytes(entries: Iterable[FolderEntry]) -> int:
    """The bytes of all files as they are written out, however often they have a chunk in common."""
    return sum(entry.size for entry in entries)


def chunk_sizes(entries: Iterable[FolderEntry]) -> Iterator[tuple[str, int]]:
    """The chunks of all files in their order, with the bytes that each has to have."""
    for entry in entries:
        for place, digest in enumerate(entry.chunks):
            yield digest, min(CHUNK_BYTES, entry.size - place * CHUNK_BYTES)


def entry_of(fields: Mapping[str, Any]) -> FolderEntry:
    """An entry from its JSON. Raises KeyError, TypeError and ValueError for other JSON."""
    return FolderEntry(
        path=str(fields["path"]),
        kind=EntryKind(fields["kind"]),
        size=int(fields.get("size", 0)),
        executable=bool(fields.get("executable", False)),
        chunks=tuple(map(str, fields.get("chunks", ()))),
        target=str(fields.get("target", "")),
    )


def entries_in(content: bytes) -> list[FolderEntry]:
    """The entries of a folder that is stored as JSON."""
    return [entry_of(one) for one in json.loads(content)]


def fields_of(entry: FolderEntry) -> dict[str, Any]:
    """The JSON of an entry, without what is empty."""
    fields: dict[str, Any] = {"path": entry.path, "kind": entry.kind.value}
    if entry.kind is EntryKind.FILE:
        fields |= {"size": entry.size, "chunks": list(entry.chunks)}
    if entry.executable:
        fields["executable"] = True
    if entry.target:
        fields["target"] = entry.target
    return fields


def _stands_alone(path: str, names: Mapping[str, str]) -> bool:
    return _folded(path) not in names


def _folded(path: str) -> str:
    return path.lower() if path.isascii() else normalize("NFC", normalize("NFC", path).casefold())


def _seen(part: str) -> str:
    return part.lower() if part.isascii() else "".join(one for one in _folded(part) if category(one) != "Cf")


def _above(path: str) -> Iterator[str]:
    """The folders that a path lies in, the outermost last."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
