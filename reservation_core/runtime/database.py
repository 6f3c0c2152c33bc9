"""`python -m reservation_core.runtime.database migrate|status`: migrate the database, or tell how far it is.

It works on GPU_DEV_DATABASE_URL or, without it, on the embedded server of GPU_DEV_HOME, which is started for the moment
if it does not run.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from reservation_core.adapters.postgres.migrating import MigrationError, MigrationStatus, status, upgrade
from reservation_core.runtime.settings import CommonSettings


@contextmanager
def operators_database(settings: CommonSettings) -> Iterator[str]:
    """The URL (for SQLAlchemy with asyncpg) of the database that these settings mean, while the block runs.

    An embedded server that does not run is started, and stopped afterwards. Raises EmbeddedPostgresError.
    """
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    server = EmbeddedPostgres(settings.home)
    if server.pid is not None:
        yield server.url
        return
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code: 0 fine, 1 failed, 3 (of `status`) there is something to migrate."""
    parser = argparse.ArgumentParser(
        prog="python -m reservation_core.runtime.database",
        description="Migrates the database of GPU_DEV_DATABASE_URL, or the embedded one of GPU_DEV_HOME.",
    )
    parser.add_argument("action", choices=["migrate", "status"])
    action = parser.parse_args(arguments).action
    try:
        with operators_database(CommonSettings()) as url:
            if action == "migrate":
                asyncio.run(upgrade(url))
            found = asyncio.run(status(url))
    except (EmbeddedPostgresError, MigrationError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(_told(found))
    return 3 if found.pending else 0


def _told(found: MigrationStatus) -> str:
    if not found.pending:
        return f"The database is up to date (revision {found.current}).\n"
    lines = "".join(f"  {revision}\n" for revision in found.pending)
    at = "empty" if found.current is None else f"at revision {found.current}"
    return f"The database is {at}. To be applied by `gpu-dev db migrate`:\n{lines}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
