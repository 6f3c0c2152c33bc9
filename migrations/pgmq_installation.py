"""PGMQ in our database: as the server's extension where it has one, else from the SQL that the `pgmq` package carries.

`pgmq_origin` remembers which way it was, so that a downgrade removes what we installed and leaves what was
there before.
"""

from collections.abc import Sequence
from enum import StrEnum

import sqlalchemy
from pgmq.install import get_embedded_install_sql, get_embedded_sql_version

from migrations.scripts import available_extension, execute_script, installed_extension


class Origin(StrEnum):
    """How PGMQ comes into a database."""

    FOUND = "found"
    """It was there before us, and stays after us."""
    EXTENSION = "extension"
    """We created the server's extension."""
    SQL = "sql"
    """We ran the package's SQL."""


class PgmqTooOldError(Exception):
    """The PGMQ of this database lacks functions that we call; the text says which, and what to do."""


# What the queue adapter and the planner's statements call.
_NEEDED = (
    "pgmq.create(text)",
    "pgmq.send(text, jsonb, jsonb)",
    "pgmq.send_batch(text, jsonb[])",
    "pgmq.read(text, integer, integer, jsonb)",
    "pgmq.delete(text, bigint[])",
    "pgmq.set_vt(text, bigint[], integer)",
    "pgmq.metrics_all()",
)

# Queues are written and emptied all day: vacuum by count, not by share, and often, so that reads stay short.
_CHURN = """
ALTER TABLE pgmq.q_{queue} SET (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.0,
    autovacuum_vacuum_insert_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.0,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
"""


def choose_origin(*, present: bool, extension_available: bool) -> Origin:
    """Decide how PGMQ comes into a database: never twice, and the server's own extension first."""
    if present:
        return Origin.FOUND
    return Origin.EXTENSION if extension_available else Origin.SQL


def install_pgmq(connection: sqlalchemy.Connection, queues: Sequence[str]) -> Origin:
    """Bring PGMQ and the queues in, inside the connection's transaction; returns which way it took.

    Raises PgmqTooOldError.
    """
    origin = choose_origin(
        present=_has_functions(connection, ("pgmq.create(text)",)),
        extension_available=available_extension(connection, "pgmq") is not None,
    )
    if origin is Origin.EXTENSION:
        execute_script(connection, "CREATE EXTENSION pgmq")
    elif origin is Origin.SQL:
        execute_script(connection, get_embedded_install_sql())
    missing = [name for name in _NEEDED if not _has_functions(connection, (name,))]
    if missing:
        raise PgmqTooOldError(
            f"The PGMQ of this database lacks {', '.join(missing)}. Update it to {get_embedded_sql_version()} or newer"
            " (`ALTER EXTENSION pgmq UPDATE;` once the server has it), then migrate again."
        )
    version = installed_extension(connection, "pgmq") or get_embedded_sql_version()
    if origin is Origin.FOUND and installed_extension(connection, "pgmq") is None:
        version = "unknown"
    execute_script(
        connection,
        """
        CREATE TABLE pgmq_origin (
            singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
            origin    text NOT NULL CHECK (origin IN ('found', 'extension', 'sql')),
            version   text NOT NULL
        );
        COMMENT ON TABLE pgmq_origin IS 'How PGMQ came into this database: a downgrade removes only what we installed';
        """,
    )
    connection.execute(
        sqlalchemy.text("INSERT INTO pgmq_origin (origin, version) VALUES (:origin, :version)"),
        {"origin": origin.value, "version": version},
    )
    create_queues(connection, queues)
    return origin


def create_queues(connection: sqlalchemy.Connection, queues: Sequence[str]) -> None:
    """Make queues in a PGMQ that is there, kept short by vacuum."""
    for queue in queues:
        connection.execute(sqlalchemy.text("SELECT pgmq.create(CAST(:queue AS text))"), {"queue": queue})
        execute_script(connection, _CHURN.format(queue=queue))


def drop_queues(connection: sqlalchemy.Connection, queues: Sequence[str]) -> None:
    """Drop queues with their messages."""
    for queue in queues:
        connection.execute(sqlalchemy.text("SELECT pgmq.drop_queue(CAST(:queue AS text))"), {"queue": queue})


def remove_pgmq(connection: sqlalchemy.Connection, queues: Sequence[str]) -> None:
    """Drop our queues with their messages, and PGMQ itself if we installed it and nobody else has a queue in it."""
    origin = Origin(connection.execute(sqlalchemy.text("SELECT origin FROM pgmq_origin")).scalar_one())
    drop_queues(connection, queues)
    others = connection.execute(sqlalchemy.text("SELECT count(*) FROM pgmq.meta")).scalar_one()
    script = "DROP TABLE pgmq_origin;"
    if others == 0 and origin is not Origin.FOUND:
        script += "DROP EXTENSION IF EXISTS pgmq; DROP SCHEMA IF EXISTS pgmq CASCADE;"
    execute_script(connection, script)


def _has_functions(connection: sqlalchemy.Connection, signatures: Sequence[str]) -> bool:
    return all(
        connection.execute(sqlalchemy.text("SELECT to_regprocedure(:name) IS NOT NULL"), {"name": name}).scalar_one()
        for name in signatures
    )
