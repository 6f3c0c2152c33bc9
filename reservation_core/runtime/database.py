"""`python -m reservation_core.runtime.database migrate|status|wait`: migrate the database, show its revision, or wait
for its migration.

It uses GPU_DEV_DATABASE_URL or, without it, the embedded server of GPU_DEV_HOME, which is started temporarily.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.migrating import (
    DatabaseAwayError,
    MigrationError,
    MigrationStatus,
    let_work,
    status,
    upgrade,
)
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.embedded.errors import EmbeddedPostgresError
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.first_administrator import ensure_first_administrator, read_token
from reservation_core.runtime.operators_database import operators_database
from reservation_core.runtime.settings.components import CommonSettings
from reservation_core.runtime.settings.environment import read_settings
from reservation_core.runtime.settings.error import SettingsError

_BETWEEN_S = 2.0
_LONGEST_S = 86_400.0


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code: 0 fine, 1 failed, 3 migrations are pending."""
    chosen = _parser().parse_args(arguments)
    try:
        # Read first, so that an unusable file changes nothing.
        token = None if chosen.admin_token_file is None else read_token(chosen.admin_token_file)
        with operators_database(read_settings(CommonSettings), new=chosen.action == "migrate") as url:
            migration = asyncio.run(_act(url, chosen, token, time.monotonic() + chosen.patience))
    except (EmbeddedPostgresError, MigrationError, SettingsError, DatabaseUnavailableError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(_description(migration))
    return 3 if migration.pending else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reservation_core.runtime.database",
        description="Migrates the database of GPU_DEV_DATABASE_URL, or the embedded one of GPU_DEV_HOME.",
    )
    parser.add_argument(
        "action", choices=["migrate", "status", "wait"],
        help="wait: until another process has migrated the database as far as this program needs",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=_seconds, default=0.0, metavar="SECONDS",
        help="how long to wait for a database that does not answer yet (and, with wait, for its migration); default 0",
    )  # fmt: skip
    parser.add_argument(
        "--admin-token-file", type=Path, metavar="FILE",
        help="with migrate: where there is no user `admin` yet, make one whose token is in this file",
    )  # fmt: skip
    parser.add_argument(
        "--application-role", metavar="NAME",
        help="with migrate: the programs work as this role, which owns nothing: give it what they need, and no more",
    )  # fmt: skip
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"must be 0 to {_LONGEST_S:.0f} seconds")
    return value


async def _act(url: str, chosen: argparse.Namespace, token: str | None, deadline: float) -> MigrationStatus:
    while True:
        try:
            if chosen.action == "migrate":
                await upgrade(url)
                if chosen.application_role is not None:
                    await let_work(url, chosen.application_role)
                if token is not None:
                    await _ensure_administrator(url, token)
            migration = await status(url)
            if chosen.action != "wait" or not migration.pending or time.monotonic() >= deadline:
                return migration
        except DatabaseAwayError:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_BETWEEN_S)


async def _ensure_administrator(url: str, token: str) -> None:
    engine = open_engine(url, pool=1, application="gpu-dev-migration")
    try:
        uow = UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(url, "gpu-dev-migration"))
        if await ensure_first_administrator(uow, RandomIds(), token, SystemClock().now()):
            sys.stdout.write("The user admin was made, with the token of that file.\n")
    finally:
        await engine.dispose()


def _description(migration: MigrationStatus) -> str:
    if not migration.pending:
        return f"The database is up to date (revision {migration.current}).\n"
    lines = "".join(f"  {revision}\n" for revision in migration.pending)
    at = "empty" if migration.current is None else f"at revision {migration.current}"
    return f"The database is {at}. To be applied by `gpu-dev db migrate`:\n{lines}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
