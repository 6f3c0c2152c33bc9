"""The files in a pod's directory, as the supervisor and the control plane write and read them."""

# ruff: noqa: PTH105, PTH106, PTH108, PTH114, PTH118, PTH123
# Part of the supervisor, which starts once per pod: importing pathlib alone would cost it 5 ms.

import errno
import os
import sys

try:
    from _json import encode_basestring_ascii as quoted  # json itself would double the time to start
except ImportError:
    from json import dumps as quoted

EXIT_FILE_ROOM = 4096
OUTPUT = "output"
"""The pipe that a pod prints into."""


class Spec:
    """What to run. `command` empty is a session."""

    def __init__(self, fields: list[str]) -> None:
        rest = iter(fields)
        self.name = next(rest)
        self.grace_s = float(next(rest))
        self.working_dir = next(rest)
        self.command = [next(rest) for _ in range(int(next(rest)))]
        self.env = {next(rest): next(rest) for _ in range(int(next(rest)))}


def read_spec(pod_dir: str) -> Spec:
    """Read `spec`: fields that each end in NUL, which neither arguments nor variables can contain.

    name, grace in seconds, working directory ("" for the pod's own), number of arguments, the arguments,
    number of variables, then each variable's name and value.
    """
    with open(pod_dir + "/spec", "rb") as file:
        return Spec([os.fsdecode(field) for field in file.read().split(b"\0")[:-1]])


def read_seconds(path: str) -> float | None:
    """A number in a file; None when there is none."""
    try:
        with open(path, "rb") as file:
            return float(file.read())
    except (FileNotFoundError, ValueError):
        return None


def as_json(fields: dict[str, str | float | bool | None]) -> bytes:
    """Flat JSON."""

    def text(value: str | float | bool | None) -> str:
        if value is None:
            return "null"
        if isinstance(value, str):
            return quoted(value.encode("utf-8", "replace").decode())
        return repr(value).lower()

    return ("{" + ", ".join(f"{quoted(key)}: {text(value)}" for key, value in fields.items()) + "}\n").encode()


def write_atomically(path: str, content: bytes) -> None:
    """Replace a file's whole content; writes over a `.new` that is already there, so that reserved room is used."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        written = os.write(fd, content)
        if written != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.ftruncate(fd, len(content))
    finally:
        os.close(fd)
    os.replace(path + ".new", path)


def reserve_room(pod_dir: str) -> None:
    """Take the room for exit.json now. Raises OSError when the disk is full."""
    fd = os.open(pod_dir + "/exit.json.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b" " * EXIT_FILE_ROOM)
    finally:
        os.close(fd)


def tidy(tombstone: str) -> None:
    """Remove what a pod leaves behind but `exit.json`: its spec, and the files in its own working directory."""
    for folder, folders, files in os.walk(tombstone, topdown=False):
        for name in [*files, *folders]:
            path = os.path.join(folder, name)
            if path == os.path.join(tombstone, "exit.json"):
                continue
            try:
                os.unlink(path) if name in files or os.path.islink(path) else os.rmdir(path)
            except OSError as problem:
                # The pod is gone all the same; what could not be removed now goes with the tombstone.
                print(f"could not remove {path}: {problem.strerror}", file=sys.stderr)  # noqa: T201
