"""Read and write the files in a pod's directory, for the supervisor and the control plane."""

# ruff: noqa: PTH105, PTH106, PTH108, PTH114, PTH118, PTH123
# Part of the supervisor, which starts once per pod: importing pathlib would cost 5 ms.

import errno
import os
import sys

try:
    from _json import encode_basestring_ascii as quoted  # importing json would double the start time
except ImportError:
    from json import dumps as quoted

EXIT_FILE_ROOM = 4096
OUTPUT = "output"
"""The named pipe for a pod's output."""


class Spec:
    """The workload to run. An empty `command` is a session."""

    def __init__(self, fields: list[str]) -> None:
        rest = iter(fields)
        self.name = next(rest)
        self.grace_s = float(next(rest))
        self.working_dir = next(rest)
        self.command = [next(rest) for _ in range(int(next(rest)))]
        self.env = {next(rest): next(rest) for _ in range(int(next(rest)))}


def read_spec(pod_dir: str) -> Spec:
    """Read `spec`, fields that end in NUL, which neither arguments nor variables can contain.

    The fields: name, grace in seconds, working directory ("" for the pod's own), number of arguments, the arguments,
    number of variables, then the name and value of every variable.
    """
    with open(pod_dir + "/spec", "rb") as file:
        return Spec([os.fsdecode(field) for field in file.read().split(b"\0")[:-1]])


def read_seconds(path: str) -> float | None:
    """Read a number from a file; None without one."""
    try:
        with open(path, "rb") as file:
            return float(file.read())
    except (FileNotFoundError, ValueError):
        return None


def as_json(fields: dict[str, str | float | bool | None]) -> bytes:
    """Encode flat JSON without importing json."""

    def text(value: str | float | bool | None) -> str:
        if value is None:
            return "null"
        if isinstance(value, str):
            return quoted(value.encode("utf-8", "replace").decode())
        return repr(value).lower()

    return ("{" + ", ".join(f"{quoted(key)}: {text(value)}" for key, value in fields.items()) + "}\n").encode()


def write_atomically(path: str, content: bytes) -> None:
    """Replace a file's content. An existing `.new` is overwritten, so that its reserved room is used."""
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
    """Reserve room for exit.json. Raises OSError when the disk is full."""
    fd = os.open(pod_dir + "/exit.json.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b" " * EXIT_FILE_ROOM)
    finally:
        os.close(fd)


def tidy(tombstone: str) -> None:
    """Remove a pod's files except `exit.json`: its spec, and the files in its own working directory."""
    for folder, folders, files in os.walk(tombstone, topdown=False):
        for name in [*files, *folders]:
            path = os.path.join(folder, name)
            if path == os.path.join(tombstone, "exit.json"):
                continue
            try:
                os.unlink(path) if name in files or os.path.islink(path) else os.rmdir(path)
            except OSError as problem:
                # The pod is gone all the same; the rest is removed with the tombstone.
                print(f"could not remove {path}: {problem.strerror}", file=sys.stderr)  # noqa: T201
