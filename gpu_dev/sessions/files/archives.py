"""Files and folders as tar streams: made of what is here, and unpacked here without leaving the target folder."""

import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from gpu_dev.errors import UsageError

_BLOCKS = 128
"""Blocks of 512 bytes that are written at once."""
_MODE_BITS = 0o777


def pack(source: Path, name: str, into: BinaryIO, skipped: Callable[[str], None]) -> None:
    """Write a file or folder under another name, with its modes and times. Links stay links, but for `source` itself.

    Sockets and devices are skipped. Raises OSError.
    """
    with tarfile.open(
        fileobj=into, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCKS * tarfile.BLOCKSIZE
    ) as archive:

        def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member

        def add(path: Path, member_name: str) -> None:
            if not (path.is_symlink() or path.is_file() or path.is_dir()):
                skipped(str(path))
                return
            archive.add(path, member_name, recursive=False, filter=without_owner)
            if path.is_dir() and not path.is_symlink():
                for below in sorted(path.iterdir()):
                    add(below, f"{member_name}/{below.name}")

        add(source.resolve(strict=True), name)


def unpack(stream: BinaryIO, name: str, target: Path, skipped: Callable[[str], None]) -> None:
    """Unpack what `pack` or tar made of `name` as `target`, with its modes.

    The stream is a stranger's: members outside `name`, and links by which later members could leave `target`, are not
    followed; devices are skipped. Raises OSError and tarfile.TarError.
    """
    if not hasattr(tarfile, "data_filter"):
        raise UsageError("Copying from a job needs Python 3.11.4 or newer here.")
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCKS * tarfile.BLOCKSIZE) as archive:
        folders: list[tarfile.TarInfo] = []
        for member in archive:
            first, _, rest = member.name.removeprefix("./").partition("/")
            if first != name:
                raise tarfile.TarError(f"{member.name!r} is not below {name!r}")
            placed = _placed(member, "/".join(filter(None, [target.name, rest])), target.parent, skipped)
            if placed is None:
                continue
            if placed.isdir():
                folders.append(placed)
                placed = placed.replace(mode=(placed.mode or 0) | 0o700, deep=False)  # until it is filled
            elif placed.isreg():
                (target.parent / placed.name).unlink(missing_ok=True)  # a link there would be written through
            archive.extract(placed, target.parent, set_attrs=True, filter="fully_trusted")
        for folder in reversed(folders):
            place = target.parent / folder.name
            os.utime(place, (folder.mtime, folder.mtime))
            place.chmod(folder.mode or 0o700)


def _placed(member: tarfile.TarInfo, name: str, folder: Path, skipped: Callable[[str], None]) -> tarfile.TarInfo | None:
    """The member as it is unpacked, or None if it is skipped."""
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        skipped(member.name)
        return None
    linked = member.linkname
    if member.islnk():  # a hard link names another member, from the archive's top
        linked = "/".join([*name.split("/")[:1], *linked.removeprefix("./").split("/")[1:]])
    renamed = member.replace(name=name, linkname=linked, mode=member.mode & _MODE_BITS, deep=False)
    check = tarfile.tar_filter if member.issym() else tarfile.data_filter
    checked = check(renamed, str(folder))
    # Root here is not root there; the library's types don't know that None leaves the owner alone.
    owner: Any = {"uid": None, "gid": None, "uname": None, "gname": None}
    return checked.replace(mode=member.mode & _MODE_BITS, deep=False, **owner)
