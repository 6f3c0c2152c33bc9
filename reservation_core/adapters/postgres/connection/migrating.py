"""Bringing a database to the schema that this program knows, and telling how far it is.

The revisions are the files in the folders of `migrations/versions`, in the order of their names. `require_migrated` and
`status` read only those names and one row, so that a process that starts on an up-to-date database never loads Alembic.
Migrators that run at the same time wait for each other. Revisions that follow each other are one transaction, but for
those that say `outside_transaction = True`: their steps run one by one, beside a service that goes on (indexes of full
tables are built CONCURRENTLY), and such a revision is repeated from its beginning when it broke off.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from reservation_core.adapters.postgres.connection.driver_errors import map_to_unavailable, sqlstate
from reservation_core.adapters.postgres.connection.engine import engine_url, found_dead_soon
from reservation_core.ports.transactions import DatabaseUnavailableError

OLDEST_SERVER = 15

# Any number will do as long as all migrators use the same: «gpudev» in ASCII.
_MIGRATION_LOCK = 0x67_70_75_64_65_76
_TURN_POLL_S = 0.1

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
    """Where the revisions are: a package beside this one."""
    folder = Path(__file__).resolve().parents[4] / "migrations"
    if (folder / "env.py").is_file():
        return folder
    raise MigrationError("The migrations are missing from this installation. Install gpu-dev-server again.")


def revisions() -> tuple[str, ...]:
    """Every revision this program knows, oldest first."""
    return tuple(sorted(_files()))


def _files() -> dict[str, Path]:
    return {path.stem: path for path in (migrations_folder() / "versions").rglob("[0-9]*.py")}


async def require_migrated(engine: AsyncEngine) -> None:
    """Nothing, where the database has all that this program needs: one that a newer program has migrated will do.

    Two short statements. Raises DatabaseUnavailableError, as DatabaseAwayError while migrations are lacking.
    """
    with map_to_unavailable() as reached:
        async with engine.connect() as connection:
            reached.connected = True
            current = await _current(connection)
    if current is None or current in revisions()[:-1]:
        at = "empty" if current is None else f"at revision {current}"
        raise DatabaseAwayError(f"The database is {at} and waits for its migration")


async def status(url: str) -> MigrationStatus:
    """How far the database is. Raises MigrationError, also when a newer program has migrated it."""
    async with _engine(url) as engine, engine.connect() as connection:
        return _status(await _current(connection))


async def upgrade(url: str) -> None:
    """Bring the database to the newest revision; nothing to do is fine. Raises MigrationError.

    What fails is not kept; the revisions before it are, if they were no part of its transaction.
    """
    async with _engine(url) as engine, _turn(engine) as turn:
        for revisions_together in _together(_status(await _current(turn)).pending):
            await _upgrade(engine, revisions_together)


async def let_work(url: str, role: str) -> None:
    """Give a role that owns nothing what the programs need, in a database that is up to date. Raises MigrationError."""
    async with _engine(url) as engine, engine.begin() as connection:
        await connection.execute(sqlalchemy.text("SELECT let_application_work(CAST(:role AS text))"), {"role": role})


async def _upgrade(engine: AsyncEngine, together: Sequence[str]) -> None:
    if _runs_outside(together[-1]):
        async with engine.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            # An index of a full table takes its time.
            await connection.exec_driver_sql("SET statement_timeout = 0")
            await _run(connection, "upgrade", together[-1])
    else:
        async with engine.begin() as connection:
            await _run(connection, "upgrade", together[-1])


async def downgrade(url: str, revision: str) -> None:
    """Go back to a revision, or to `base`, which drops everything. DATA IS LOST. Raises MigrationError."""
    if revision != "base" and revision not in revisions():
        raise MigrationError(f"There is no revision {revision}; choose one of: base, {', '.join(revisions())}.")
    async with _engine(url) as engine, _turn(engine) as turn:
        if _status(await _current(turn)).current is not None:
            async with engine.begin() as connection:
                await _run(connection, "downgrade", revision)


def _together(pending: Sequence[str]) -> Iterator[Sequence[str]]:
    """Revisions that are one transaction, in order; one that runs outside of any is by itself."""
    group: list[str] = []
    for revision in pending:
        if _runs_outside(revision):
            if group:
                yield group
            yield [revision]
            group = []
        else:
            group.append(revision)
    if group:
        yield group


def _runs_outside(revision: str) -> bool:
    """Whether a revision says `outside_transaction = True`. Read from its text: Alembic need not be loaded for it."""
    text = _files()[revision].read_text(encoding="utf-8")
    return "\noutside_transaction = True\n" in text


@asynccontextmanager
async def _engine(url: str) -> AsyncIterator[AsyncEngine]:
    """Connections to a database; its errors become MigrationError without the URL's secrets."""
    target = engine_url(url)
    # Without a bound on statements: a migration takes as long as it takes.
    engine = create_async_engine(target, poolclass=NullPool, connect_args=found_dead_soon())
    try:
        with map_to_unavailable() as reached:

            @sqlalchemy.event.listens_for(engine.sync_engine, "connect")
            def _note_connection(*_: object) -> None:
                reached.connected = True

            yield engine
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


@asynccontextmanager
async def _turn(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Hold the migrators' lock, on a connection in autocommit mode: the second migrator finds the work done.

    It is asked for again and again: whoever waited for it within a statement would have a snapshot, and building an
    index CONCURRENTLY waits for all of those.
    """
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await _require_server(connection)
        ask = sqlalchemy.text("SELECT pg_try_advisory_lock(CAST(:key AS bigint))")
        while not await connection.scalar(ask, {"key": _MIGRATION_LOCK}):  # noqa: ASYNC110 - nobody in here tells us
            await asyncio.sleep(_TURN_POLL_S)
        yield connection


async def _run(connection: AsyncConnection, action: str, revision: str) -> None:
    # Imported only when there is something to do: most starts find the database current.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from asyncpg.exceptions import PostgresError  # noqa: PLC0415

    from migrations.pgmq_installation import PgmqTooOldError  # noqa: PLC0415
    from migrations.scripts import MissingExtensionError  # noqa: PLC0415

    def run(sync_connection: Any) -> None:
        config = Config()
        config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
        config.set_main_option("recursive_version_locations", "true")
        config.attributes["connection"] = sync_connection
        {"upgrade": command.upgrade, "downgrade": command.downgrade}[action](config, revision)

    try:
        await connection.run_sync(run)
    except (PgmqTooOldError, MissingExtensionError) as error:
        raise MigrationError(str(error)) from error
    except PostgresError as error:
        hint = getattr(error, "hint", None)
        advice = f" Hint: {hint}" if hint else ""
        in_steps = action == "upgrade" and _runs_outside(revision)
        kept = "Steps before it were kept: migrate again to go on." if in_steps else "Nothing of this run was kept."
        raise MigrationError(f"The {action} failed: {error}.{advice} {kept}") from error
