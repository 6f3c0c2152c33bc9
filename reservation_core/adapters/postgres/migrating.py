"""Bringing a database to the schema that this program knows, and telling how far it is.

The revisions are the files of `migrations/versions`, in the order of their names. `is_current` and `status` read only
those names and one row, so that a process that starts on an up-to-date database never loads Alembic.
Migrators that run at the same time wait for each other, and all revisions of one run are one transaction.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from reservation_core.adapters.postgres.driver_errors import sqlstate, told_as_unavailable
from reservation_core.adapters.postgres.engine import engine_url, found_dead_soon
from reservation_core.ports.transactions import DatabaseUnavailableError

OLDEST_SERVER = 15

# Any number will do as long as all migrators use the same: «gpudev» in ASCII.
_MIGRATION_LOCK = 0x67_70_75_64_65_76

# The server starts or stops, or refuses connections because it has too many.
_NO_CONNECTIONS_YET = frozenset({"57P03", "57P01", "53300"})


class MigrationError(Exception):
    """The database can't be migrated or asked; the text says why and what to do."""


class DatabaseAwayError(MigrationError, DatabaseUnavailableError):
    """The database does not answer, or not yet: worth another try."""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """How far a database is: its revision (None: empty), the newest one known here, and what lies between, in order."""

    current: str | None
    head: str
    pending: tuple[str, ...]


def migrations_folder() -> Path:
    """Where the revisions are: inside the installed package, or at the top of the source tree."""
    here = Path(__file__).resolve()
    for folder in (here.parent / "migrations", here.parents[3] / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise MigrationError("The migrations are missing from this installation. Install gpu-dev-server again.")


def revisions() -> tuple[str, ...]:
    """Every revision this program knows, oldest first."""
    return tuple(sorted(path.stem for path in (migrations_folder() / "versions").glob("[0-9]*.py")))


async def is_current(connection: AsyncConnection) -> bool:
    """Whether the database is at the newest revision. Two short statements; Alembic is not loaded."""
    return await _current(connection) == revisions()[-1]


async def status(url: str) -> MigrationStatus:
    """How far the database is. Raises MigrationError, also when a newer program has migrated it."""
    async with _connect(url) as connection:
        return _status(await _current(connection))


async def upgrade(url: str) -> None:
    """Bring the database to the newest revision; nothing to do is fine. Raises MigrationError."""
    async with _connect(url) as connection:
        await _require_server(connection)
        await _wait_for_turn(connection)
        if _status(await _current(connection)).pending:
            await _run(connection, "upgrade", "head")


async def downgrade(url: str, revision: str) -> None:
    """Go back to a revision, or to `base`, which drops everything. DATA IS LOST. Raises MigrationError."""
    if revision != "base" and revision not in revisions():
        raise MigrationError(f"There is no revision {revision}; choose one of: base, {', '.join(revisions())}.")
    async with _connect(url) as connection:
        await _require_server(connection)
        await _wait_for_turn(connection)
        if _status(await _current(connection)).current is not None:
            await _run(connection, "downgrade", revision)


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[AsyncConnection]:
    """One connection and one transaction; database errors become MigrationError without the URL's secrets."""
    target = engine_url(url)
    # Without a bound on statements: a migration takes as long as it takes.
    engine = create_async_engine(target, poolclass=NullPool, connect_args=found_dead_soon())
    try:
        with told_as_unavailable() as reached:
            async with engine.begin() as connection:
                reached.connected = True
                yield connection
    except DatabaseUnavailableError as error:
        raise _away(error, target) from error.__cause__
    except DBAPIError as error:
        raise MigrationError(f"The database refused: {error.orig}. Nothing of this run was kept.") from error
    finally:
        await engine.dispose()


def _away(error: DatabaseUnavailableError, target: URL) -> DatabaseAwayError:
    cause = error.__cause__
    if isinstance(cause, OSError):
        shown, why = target.render_as_string(hide_password=True), str(cause) or type(cause).__name__
        return DatabaseAwayError(
            f"The database at {shown} can't be reached ({why}). Is it running, and is GPU_DEV_DATABASE_URL right?"
        )
    if sqlstate(error if cause is None else cause) in _NO_CONNECTIONS_YET:
        return DatabaseAwayError(f"The database does not take connections yet: {getattr(cause, 'orig', cause)}.")
    return DatabaseAwayError(f"Not now: {error}. Nothing of this run was kept.")


async def _current(connection: AsyncConnection) -> str | None:
    exists = await connection.scalar(sqlalchemy.text("SELECT to_regclass('alembic_version') IS NOT NULL"))
    if not exists:
        return None
    found = await connection.scalar(sqlalchemy.text("SELECT version_num FROM alembic_version"))
    return None if found is None else str(found)


def _status(current: str | None) -> MigrationStatus:
    known = revisions()
    if current is not None and current not in known:
        raise MigrationError(
            f"The database is at revision {current}, which this program does not know (its newest is {known[-1]})."
            " A newer program has migrated it: upgrade this one."
        )
    return MigrationStatus(current, known[-1], known if current is None else known[known.index(current) + 1 :])


async def _require_server(connection: AsyncConnection) -> None:
    number = int(await connection.scalar(sqlalchemy.text("SELECT current_setting('server_version_num')")) or 0)
    check_server_version(number)


def check_server_version(number: int) -> None:
    """Refuse servers that are too old. `number` is `server_version_num`, such as 150004. Raises MigrationError."""
    if number < OLDEST_SERVER * 10_000:
        raise MigrationError(
            f"The server is PostgreSQL {number // 10_000}; {OLDEST_SERVER} or newer is needed. Upgrade it, or point"
            " GPU_DEV_DATABASE_URL at a newer one."
        )


async def _wait_for_turn(connection: AsyncConnection) -> None:
    """Hold the migrators' lock until the transaction ends: the second one then finds the work done."""
    await connection.execute(
        sqlalchemy.text("SELECT pg_advisory_xact_lock(CAST(:key AS bigint))"), {"key": _MIGRATION_LOCK}
    )


async def _run(connection: AsyncConnection, action: str, revision: str) -> None:
    # Imported only when there is something to do: most starts find the database current.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from asyncpg.exceptions import PostgresError  # noqa: PLC0415

    from reservation_core.adapters.postgres.pgmq_installation import PgmqTooOldError  # noqa: PLC0415
    from reservation_core.adapters.postgres.scripts import MissingExtensionError  # noqa: PLC0415

    def run(sync_connection: Any) -> None:
        config = Config()
        config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
        config.attributes["connection"] = sync_connection
        {"upgrade": command.upgrade, "downgrade": command.downgrade}[action](config, revision)

    try:
        await connection.run_sync(run)
    except (PgmqTooOldError, MissingExtensionError) as error:
        raise MigrationError(str(error)) from error
    except PostgresError as error:
        hint = getattr(error, "hint", None)
        advice = f" Hint: {hint}" if hint else ""
        raise MigrationError(f"The {action} failed: {error}.{advice} Nothing of this run was kept.") from error
