"""The secrets of a local pod: `secrets/` in the pod's directory, for the server's user alone.

`variables` holds those that are variables until the supervisor has read them, and `files/` those that are files, each
at its path below, until the pod's processes have ended. Pods without secrets have no such folder.
"""

# ruff: noqa: PTH102, PTH112, PTH114, PTH118, PTH123
# Part of the supervisor, which starts once per pod: importing pathlib would cost 5 ms.

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "secrets"


def folder_of_files(pod_dir: str) -> str:
    """Where a pod's secrets are that are files."""
    return os.path.join(pod_dir, FOLDER, "files")


def write_secrets(pod_dir: str, variables: dict[str, str], files: dict[str, str]) -> None:
    """Write the values of variables by name and of files by absolute path. Raises OSError."""
    os.mkdir(os.path.join(pod_dir, FOLDER), 0o700)
    os.mkdir(folder_of_files(pod_dir), 0o700)
    _write(_variables(pod_dir), b"".join(os.fsencode(text) + b"\0" for pair in variables.items() for text in pair))
    for path, value in files.items():
        folder = folder_of_files(pod_dir)
        for part in path.split("/")[1:-1]:
            folder = os.path.join(folder, part)
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o700)
        _write(folder_of_files(pod_dir) + path, value.encode())


def read_variables(pod_dir: str) -> dict[str, str]:
    """The secrets that are variables; nothing for a pod without secrets."""
    try:
        with open(_variables(pod_dir), "rb") as file:
            fields = [os.fsdecode(field) for field in file.read().split(b"\0")[:-1]]
    except FileNotFoundError:
        return {}
    return dict(zip(fields[::2], fields[1::2], strict=True))


def remove_variables(pod_dir: str) -> None:
    """Remove the file of variables, once they are read."""
    _remove(os.unlink, _variables(pod_dir))


def remove_secrets(pod_dir: str) -> None:
    """Remove all secrets of a pod whose processes have ended. What can't be removed is reported and stays."""
    for folder, folders, files in os.walk(os.path.join(pod_dir, FOLDER), topdown=False):
        for name in files:
            _remove(os.unlink, os.path.join(folder, name))
        for name in folders:
            path = os.path.join(folder, name)
            _remove(os.unlink if os.path.islink(path) else os.rmdir, path)
    _remove(os.rmdir, os.path.join(pod_dir, FOLDER))


def _variables(pod_dir: str) -> str:
    return os.path.join(pod_dir, FOLDER, "variables")


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(content)


def _remove(remove: "Callable[[str], None]", path: str) -> None:
    try:
        remove(path)
    except FileNotFoundError:
        pass  # a pod without secrets, or they were removed before
    except OSError as problem:
        print(f"could not remove {path}: {problem.strerror}", file=sys.stderr)  # noqa: T201
