"""The server's account: PostgreSQL refuses to run as root, so root creates an account for it."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError

SERVER_ACCOUNT = "gpu-dev-postgres"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine; with `switch`, processes must be started as another user than ours."""

    uid: int
    gid: int
    switch: bool

    def popen_arguments(self) -> dict[str, Any]:
        """Arguments for `subprocess` that run a process as this account, without our environment."""
        arguments: dict[str, Any] = {"cwd": "/", "env": {"PATH": _SYSTEM_PATH, "LC_ALL": "C", "TZ": "UTC"}}
        if self.switch:
            arguments |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return arguments

    def can_use(self, path: Path) -> bool:
        """Whether this account can enter the folder or run the file `path`, with all folders above it."""
        if not self.switch:
            return os.access(path, os.X_OK)
        test = shutil.which("test", path=_SYSTEM_PATH)
        if test is None:
            return False
        return subprocess.run([test, "-x", str(path)], check=False, **self.popen_arguments()).returncode == 0


def server_account() -> Account:
    """The server's account: ours, or for root `gpu-dev-postgres`, created if missing. Raises EmbeddedPostgresError."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), switch=False)
    entry = _find() or _create()
    return Account(entry.pw_uid, entry.pw_gid, switch=True)


def _find() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(SERVER_ACCOUNT)
    except KeyError:
        return None


def _create() -> pwd.struct_passwd:
    """Create the account with `useradd`, or `adduser` of BusyBox."""
    useradd = shutil.which("useradd", path=_SYSTEM_PATH)
    adduser = shutil.which("adduser", path=_SYSTEM_PATH)
    if useradd is not None:
        flags = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/false"]
        command = [useradd, *flags, SERVER_ACCOUNT]
    elif adduser is not None:
        command = [adduser, "-S", "-D", "-H", "-s", "/bin/false", SERVER_ACCOUNT]
    else:
        raise EmbeddedPostgresError(_no_account("neither useradd nor adduser is installed"))
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={"PATH": _SYSTEM_PATH})
    entry = _find()  # another process may have created it meanwhile
    if entry is None:
        raise EmbeddedPostgresError(_no_account(done.stderr.strip() or f"{command[0]} said {done.returncode}"))
    return entry


def _no_account(why: str) -> str:
    return (
        f"PostgreSQL does not run as root, and its account {SERVER_ACCOUNT!r} could not be created ({why}). "
        f"Create a system user {SERVER_ACCOUNT!r}, run as an ordinary user, "
        "or name an existing server in GPU_DEV_DATABASE_URL."
    )
