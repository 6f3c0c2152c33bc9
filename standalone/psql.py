"""psql on the system's database: the embedded server's psql, or the one on the PATH."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError
from reservation_core.adapters.postgres.embedded.layout import packaged_binaries
from reservation_core.adapters.postgres.embedded.running import embedded_database
from reservation_core.runtime.settings.error import SettingsError

_WITHOUT_DATABASE = ("--version", "-V", "--help", "-?", "--help=options", "--help=commands", "--help=variables")
_OF_MAKE_UP = frozenset({"GPU_DEV_HOME", "GPU_DEV_LISTEN", "GPU_DEV_LOCAL_GPUS", "GPU_DEV_SERVER", "GPU_DEV_TOKEN"})
"""Variables that leave open no more than the embedded database's folder."""


def open_psql(arguments: list[str]) -> int:
    """Run psql with `arguments` on the database of the settings; returns psql's exit code.

    The embedded server runs meanwhile if the system is not up. A password is passed by the environment, where `ps`
    does not show it.
    """
    program = _program()
    if program is None:
        sys.stderr.write("There is no psql. Install PostgreSQL's client (Debian: apt install postgresql-client).\n")
        return 1
    if len(arguments) == 1 and arguments[0] in _WITHOUT_DATABASE:
        return subprocess.run([program, *arguments], check=False).returncode
    try:
        with _database(os.environ) as url:
            environment = {**os.environ, **connection_variables(url)}
            return subprocess.run([program, *arguments], check=False, env=environment).returncode
    except (EmbeddedPostgresError, SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


@contextmanager
def _database(environ: Mapping[str, str]) -> Iterator[str]:
    """The URL of the settings' database. Raises EmbeddedPostgresError and SettingsError."""
    if all(name in _OF_MAKE_UP for name in environ if name.upper().startswith("GPU_DEV_")):
        with embedded_database(Path(environ.get("GPU_DEV_HOME", ".gpu-dev"))) as url:
            yield url
        return
    # To read all settings costs more than the rest of this command.
    from reservation_core.runtime.operators_database import operators_database  # noqa: PLC0415
    from reservation_core.runtime.settings.components import CommonSettings  # noqa: PLC0415
    from reservation_core.runtime.settings.environment import read_settings  # noqa: PLC0415

    with operators_database(read_settings(CommonSettings)) as url:
        yield url


def connection_variables(url: str) -> dict[str, str]:
    """A database URL as the environment variables that psql reads."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    found = {
        "PGHOST": parts.hostname or query.get("host"),
        "PGPORT": query.get("port") if parts.port is None else str(parts.port),
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": unquote(parts.path.removeprefix("/")),
        "PGSSLMODE": query.get("sslmode") or query.get("ssl"),
    }
    return {name: value for name, value in found.items() if value}


def _program() -> str | None:
    """The packaged psql, which has the server's version; else the one on the PATH."""
    try:
        packaged = packaged_binaries() / "bin" / "psql"
    except EmbeddedPostgresError:
        packaged = Path()
    return str(packaged) if packaged.is_file() and os.access(packaged, os.X_OK) else shutil.which("psql")
