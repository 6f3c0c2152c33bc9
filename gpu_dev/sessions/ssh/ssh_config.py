"""OpenSSH's configuration for jobs: a file of our own, and one line in the user's that includes it."""

import os
import shlex
from pathlib import Path

from gpu_dev.errors import UsageError
from gpu_dev.namesakes import own_program
from gpu_dev.server.connection import Connection, write_private
from gpu_dev.sessions.ssh.ssh_files import DOMAIN, SshFiles, options, quoted

_COMMENT = "# gpu-dev: jobs as hosts; `gpu-dev config-ssh --remove` removes this line."
_USUAL_MODE = 0o600


def our_command(connection: Connection) -> list[str]:
    """The words by which other programs call this one for the same server, whatever their environment is."""
    words = [str(own_program()), "--server", connection.server]
    source = Path(connection.source)
    if source.is_file() and source.name != "login.json":
        words += ["--token-file", str(source.absolute())]
    return words


def config_text(connection: Connection, files: SshFiles) -> str:
    """The file of our own."""
    command = shlex.join(our_command(connection)).replace("%", "%%")
    lines = [
        "# Written by `gpu-dev config-ssh`, which overwrites changes.",
        f"Host *{DOMAIN}",
        *(f"    {line}" for line in options(files, f"{command} ssh --stdio %h")),
        # Both have to be there before OpenSSH looks for them: the certificate, and the user's name by host.
        f'Match host "*{DOMAIN}" exec "{command} ssh --certificate %n"',
        f"    Include {quoted(f'{files.users}/*')}",
    ]
    return "\n".join(lines) + "\n"


def add(connection: Connection, files: SshFiles, user_config: Path) -> bool:
    """Write both; returns whether the user's file had to be changed. Raises UsageError for one that can't be read."""
    write_private(files.config, config_text(connection, files))
    text = _read(user_config)
    line = f"Include {quoted(files.config)}"
    kept = _without(text, files)
    fresh = f"{_COMMENT}\n{line}\n" + (f"\n{kept}" if kept else "")
    if text == fresh:
        return False
    _write(user_config, fresh)
    return True


def remove(files: SshFiles, user_config: Path) -> bool:
    """Remove both; returns whether there was something to remove. Raises UsageError."""
    text = _read(user_config)
    kept = _without(text, files)
    had_file = files.config.is_file()
    files.config.unlink(missing_ok=True)
    if kept == text:
        return had_file
    _write(user_config, kept)
    return True


def _without(text: str, files: SshFiles) -> str:
    """The user's own lines."""
    ours = {_COMMENT, f"Include {quoted(files.config)}"}
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if line.strip() not in ours]
    if len(kept) < len(lines) and kept and not kept[0].strip():
        del kept[0]
    return "".join(kept)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error


def _write(path: Path, text: str) -> None:
    """Write the user's file whole or not at all, through links, with the mode that it has."""
    place = path.resolve()
    try:
        mode = place.stat().st_mode & 0o777 if place.exists() else _USUAL_MODE
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = place.with_name(f".{place.name}.gpu-dev-{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        fresh.chmod(mode)
        fresh.replace(place)
    except OSError as error:
        raise UsageError(f"{path} can't be written: {error.strerror}.") from error
