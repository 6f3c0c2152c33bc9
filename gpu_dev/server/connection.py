"""The server to call, and the token for it.

The first source that is set counts. Server: `--server`, `GPU_DEV_SERVER`, the login file, the server of `make up`.
Token: `--token-file`, `GPU_DEV_TOKEN`, the login file's entry for that very server, and, for a server on this machine
only, `$GPU_DEV_HOME/admin-token`. A stored token is never sent to a server it was not stored for.
The server of `make up` is at `GPU_DEV_LISTEN`, or where its home says that it listens: the home is believed together
with its own token, and never with another one.
"""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpu_dev.errors import NotLoggedInError, UsageError
from gpu_dev.server.ways import Way, way_of
from reservation_core.domain.similar_names import similar

DEFAULT_LISTEN = "127.0.0.1:8080"
ADDRESS_FILE = "address"
"""In the home of `make up`: the address at which its server listens, or listened."""
TOKEN_VARIABLE = "GPU_DEV_TOKEN"  # noqa: S105 - its name
NO_SOURCE = "nowhere"
ADMIN_TOKEN = "admin-token"  # noqa: S105 - the name of a file in the home of `make up`
_PREFIX = "GPU_DEV_"
_VARIABLES = ("SERVER", "TOKEN", "HOME", "LISTEN")
_MISTYPED = 0.8
_LONGEST_ADDRESS = 300
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Connection:
    """A server's base URL (no slash at its end) and the token for it.

    `source` names the origin of the token, and `way` the way to get another.
    """

    server: str
    token: str | None = field(default=None, repr=False)
    source: str = NO_SOURCE
    way: Way | None = None


def is_loopback(server: str) -> bool:
    """Whether the server is on this machine."""
    return (urlsplit(server).hostname or "") in _LOOPBACK


def normal_server(text: str) -> str:
    """A server's URL in its normal form. Raises UsageError unless it is an http(s) URL without credentials."""
    url = urlsplit(text if "://" in text else f"http://{text}")
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        raise UsageError(f"{text!r} is not a server's address. Write it as http://host:port or https://host.")
    if url.username or url.password:
        raise UsageError("A server's address must not carry a password. Use `gpu-dev login` for the token.")
    return f"{url.scheme}://{url.netloc.lower()}{url.path.rstrip('/')}"


def login_file(environ: Mapping[str, str]) -> Path:
    """The file in which `gpu-dev login` keeps tokens: `$XDG_CONFIG_HOME/gpu-dev/login.json`."""
    base = environ.get("XDG_CONFIG_HOME") or ""
    # By the XDG rules, a relative path is ignored.
    folder = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return folder / "gpu-dev" / "login.json"


def resolve(server: str | None, token_file: Path | None, environ: Mapping[str, str]) -> Connection:
    """Find server and token; None for no token.

    Raises UsageError for a bad address or token file, or a mistyped variable, NotLoggedInError for a login file that
    others can read.
    """
    _refuse_mistyped(environ)
    logins = _read_logins(login_file(environ))
    chosen = server or environ.get("GPU_DEV_SERVER") or logins.get("server")
    has_token = token_file is not None or bool(environ.get(TOKEN_VARIABLE))
    if not chosen and not has_token and (found := _written_connection(environ)) is not None:
        return found
    url = normal_server(chosen or _default_server(environ))
    if token_file is not None:
        return Connection(url, read_token(token_file), str(token_file))
    if environ.get(TOKEN_VARIABLE):
        return Connection(url, checked_token(environ[TOKEN_VARIABLE], TOKEN_VARIABLE), TOKEN_VARIABLE)
    stored = logins.get("tokens", {}).get(url)
    if stored:
        return Connection(url, stored, str(login_file(environ)), way_of(logins.get("ways", {}).get(url)))
    admin = _home(environ) / ADMIN_TOKEN
    if is_loopback(url) and admin.is_file():
        return Connection(url, read_token(admin), str(admin))
    return Connection(url, None)


def resolve_job(job_id: str | None, environ: Mapping[str, str]) -> tuple[str, Connection] | None:
    """Inside a job: its id, and the connection with its own token. None elsewhere, and for another job's id."""
    own, token = environ.get("GPU_DEV_JOB_ID"), environ.get("GPU_DEV_JOB_TOKEN")
    if not own or not token or job_id not in (None, own):
        return None
    server = environ.get("GPU_DEV_JOB_SERVER") or environ.get("GPU_DEV_SERVER") or _default_server(environ)
    return own, Connection(normal_server(server), checked_token(token, "GPU_DEV_JOB_TOKEN"), "GPU_DEV_JOB_TOKEN")


def read_token(path: Path) -> str:
    """The token in a file. Raises UsageError without one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {path} can't be read: {_cause(error)}.") from error
    return checked_token(text, str(path))


def checked_token(text: str, source: str) -> str:
    """A token without surrounding white space. Raises UsageError, which does not show it, for an impossible one."""
    token = text.strip()
    if not token or not token.isascii() or any(character <= " " for character in token):
        raise UsageError(f"{source} holds no token: a token is one line of printable characters without spaces.")
    return token


def store_login(path: Path, server: str, token: str, *, way: Way | None = None, current: bool = True) -> None:
    """Remember a token for a server (file mode 0600) and how it was got.

    With `current` the server is the one to use from now on.
    """
    logins = _read_logins(path)
    tokens = {**logins.get("tokens", {}), server: token}
    ways = {name: remembered_way for name, remembered_way in logins.get("ways", {}).items() if name != server}
    if way is not None:
        ways[server] = way.remembered()
    chosen = server if current else logins.get("server")
    write_private(path, json.dumps({"server": chosen, "tokens": tokens, "ways": ways}, indent=2) + "\n")


def forget_login(path: Path, server: str) -> bool:
    """Delete a server's stored token; false if there was none."""
    logins = _read_logins(path)
    tokens = dict(logins.get("tokens", {}))
    if tokens.pop(server, None) is None:
        return False
    ways = {name: remembered_way for name, remembered_way in logins.get("ways", {}).items() if name != server}
    current = None if logins.get("server") == server else logins.get("server")
    write_private(path, json.dumps({"server": current, "tokens": tokens, "ways": ways}) + "\n")
    return True


def _refuse_mistyped(environ: Mapping[str, str]) -> None:
    """Raise UsageError for a variable that is one of ours, mistyped: it would have no effect."""
    for variable in environ:
        name = variable.removeprefix(_PREFIX)
        if name == variable or name in _VARIABLES:
            continue
        if (meant := similar(name, _VARIABLES, _MISTYPED)) is not None:
            raise UsageError(f"Nothing reads the variable {variable}. Did you mean {_PREFIX}{meant}?")


def _default_server(environ: Mapping[str, str]) -> str:
    host, _, port = (environ.get("GPU_DEV_LISTEN") or DEFAULT_LISTEN).rpartition(":")
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '', '[::]') else host}:{port}"  # noqa: S104 - it is replaced


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("GPU_DEV_HOME") or ".gpu-dev")


def _written_connection(environ: Mapping[str, str]) -> Connection | None:
    """The server of the home, at the address that `make up` wrote down, with the home's own token.

    None where either is missing, and for a home of somebody else's, which would lead this user to their server.
    """
    home = _home(environ)
    if environ.get("GPU_DEV_LISTEN") or not (home / ADMIN_TOKEN).is_file():
        return None
    address = _written_address(home)
    return None if address is None else Connection(address, read_token(home / ADMIN_TOKEN), str(home / ADMIN_TOKEN))


def _written_address(home: Path) -> str | None:
    """The address in a home; None unless only this user can write to both, and it names this machine."""
    with ExitStack() as opened:
        try:
            folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            file = os.open(ADDRESS_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            opened.callback(os.close, file)
            if not (_is_own(os.fstat(folder)) and _is_own(os.fstat(file)) and stat.S_ISREG(os.fstat(file).st_mode)):
                return None
            address = normal_server(os.read(file, _LONGEST_ADDRESS).decode("ascii").strip())
        except (OSError, UnicodeDecodeError, UsageError):
            return None
    return address if is_loopback(address) else None


def _is_own(status: os.stat_result) -> bool:
    """Whether a file is the caller's, and only the caller can write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _read_logins(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise NotLoggedInError(
                    f"{path} holds tokens and can be read by others (mode {mode:o}).", next_command=f"chmod 600 {path}"
                )
            logins = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NotLoggedInError(
            f"The login file {path} can't be read: {_cause(error)}. Remove it and log in again.",
            next_command="gpu-dev login",
        ) from error
    if not isinstance(logins, dict) or not all(isinstance(logins.get(key, {}), dict) for key in ("tokens", "ways")):
        raise NotLoggedInError(
            f"The login file {path} is damaged. Remove it and log in again.", next_command="gpu-dev login"
        )
    return logins


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def _cause(error: Exception) -> str:
    """The cause of a file's error, without any of the file's contents."""
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else type(error).__name__
