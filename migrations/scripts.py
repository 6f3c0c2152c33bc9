"""SQL scripts of many statements, run whole inside the transaction of a migration, or step by step outside of one.

What runs outside a transaction must be safe to repeat: a migration that broke off begins again.
"""

from pathlib import Path
from typing import Any

import sqlalchemy

_VERSIONS = Path(__file__).with_name("versions")


class MissingExtensionError(Exception):
    """The server lacks an extension that the schema needs; the text says how to provide it."""


def sql_of(name: str) -> str:
    """A file of another revision's SQL, by its name without `.sql`, whichever folder it is in."""
    (path,) = _VERSIONS.rglob(f"{name}.sql")
    return path.read_text(encoding="utf-8")


def execute_script(connection: sqlalchemy.Connection, sql: str) -> None:
    """Run many statements in the connection's transaction, in one round trip and without parameters.

    Raises what asyncpg raises. The statements must not end the transaction themselves.
    """
    # The dialect begins its transaction with the first statement that goes through it; a script doesn't.
    connection.exec_driver_sql("SELECT 1")

    async def run(driver: Any) -> None:
        if not driver.is_in_transaction():
            raise RuntimeError("A script was about to run outside a transaction; begin one on this connection first.")
        await driver.execute(sql)

    # SQLAlchemy's pool proxy does not declare the method that its asyncpg adapter has.
    adapter: Any = connection.connection.dbapi_connection
    adapter.run_async(run)


def execute_outside(connection: sqlalchemy.Connection, sql: str) -> str:
    """Run a statement, or a script that begins and ends its transactions itself, on a connection in autocommit mode.

    Returns the last command's tag, such as `UPDATE 5000`. Raises what asyncpg raises.
    """

    async def run(driver: Any) -> str:
        if driver.is_in_transaction():
            raise RuntimeError("A step that must run outside a transaction was called within one.")
        return str(await driver.execute(sql, timeout=None))

    adapter: Any = connection.connection.dbapi_connection
    return str(adapter.run_async(run))


def execute_batches(connection: sqlalchemy.Connection, sql: str) -> None:
    """Run a statement that changes some rows at a time, outside a transaction, until none are left."""
    while not execute_outside(connection, sql).endswith(" 0"):
        pass


def build_index(connection: sqlalchemy.Connection, name: str, definition: str, *, unique: bool = False) -> None:
    """CREATE INDEX CONCURRENTLY `name` ON `definition`, outside a transaction: writers of the table go on meanwhile.

    A valid index of this name stays. One that was broken off while it was built is invalid: it is made again.
    """
    valid = connection.exec_driver_sql(
        "SELECT i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass($1)", (name,)
    ).scalar_one_or_none()
    if valid:
        return
    if valid is not None:
        drop_index(connection, name)
    kind = "UNIQUE INDEX" if unique else "INDEX"
    execute_outside(connection, f"CREATE {kind} CONCURRENTLY {name} ON {definition}")


def drop_index(connection: sqlalchemy.Connection, name: str) -> None:
    """Drop an index outside a transaction, if it is there; nobody waits for it."""
    execute_outside(connection, f"DROP INDEX CONCURRENTLY IF EXISTS {name}")


def available_extension(connection: sqlalchemy.Connection, name: str) -> str | None:
    """The version of an extension that the server could install; None when it has none."""
    found = connection.execute(
        sqlalchemy.text("SELECT default_version FROM pg_available_extensions WHERE name = :name"), {"name": name}
    ).scalar_one_or_none()
    return None if found is None else str(found)


def installed_extension(connection: sqlalchemy.Connection, name: str) -> str | None:
    """The version of an extension in this database; None when it is not installed."""
    found = connection.execute(
        sqlalchemy.text("SELECT extversion FROM pg_extension WHERE extname = :name"), {"name": name}
    ).scalar_one_or_none()
    return None if found is None else str(found)


def require_extension(connection: sqlalchemy.Connection, name: str) -> None:
    """Make sure that an extension is installed or can be. Raises MissingExtensionError."""
    if installed_extension(connection, name) is not None:
        return
    if available_extension(connection, name) is None:
        raise MissingExtensionError(
            f"The server has no {name}, which the ledger's constraints need. It is part of PostgreSQL's contrib:"
            " install that on the server (Debian, Ubuntu: part of `postgresql`; Fedora: `postgresql-contrib`), then"
            " migrate again."
        )
    may_create = connection.execute(
        sqlalchemy.text("SELECT has_database_privilege(current_database(), 'CREATE')")
    ).scalar_one()
    if not may_create:
        raise MissingExtensionError(
            f"{name} is not installed in this database, and this role may not install it. Have its owner run"
            f" `CREATE EXTENSION {name};` in it (or `GRANT CREATE ON DATABASE …` to this role), then migrate again."
        )


def lock_tables(connection: sqlalchemy.Connection, tables: str) -> None:
    """Lock tables for a change of their columns. Raises what asyncpg raises after about three minutes of trying.

    A lock that is not had at once would keep everybody waiting who comes later: it is tried for a moment at a time.
    """
    execute_script(connection, _LOCK.format(tables=tables))


def locked_script(tables: str, sql: str) -> str:
    """A script in a transaction of its own, for `execute_outside`, that has locked tables as `lock_tables` does."""
    return f"BEGIN;\n{_LOCK.format(tables=tables)}\n{sql}\nCOMMIT;"


_LOCK = """
DO $$
BEGIN
    FOR try IN 1..600 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF try = 600 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    SET LOCAL lock_timeout = 0;
END $$;
"""
