"""Arrays of jobs. Runs beside the service: see `outside_transaction`.

Every step may have been done before: a run that broke off is repeated from the beginning.
"""

from pathlib import Path

from alembic import op

from migrations.scripts import build_index, drop_index, execute_outside, locked_script, sql_of

revision = "0049_arrays"
down_revision = "0048_shares"
branch_labels = None
depends_on = None

outside_transaction = True

_INDEXES = {
    "reservations_elements": "reservations (array_id, array_index) WHERE array_id IS NOT NULL",
    "reservations_open_elements": "reservations (array_id, status) WHERE array_id IS NOT NULL AND finished_at IS NULL",
    "reservations_open_arrays":
        "reservations (line_type, gpus, nodes) "
        "WHERE array_size IS NOT NULL AND array_id IS NULL AND finished_at IS NULL",
    # Lists show an array as one job: they don't walk over its elements.
    "reservations_listed": "reservations (seq) WHERE kind = 'job' AND array_id IS NULL",
    "reservations_listed_of_user": "reservations (user_id, seq) WHERE kind = 'job' AND array_id IS NULL",
    "reservations_ended_listed":
        "reservations (status, seq) WHERE kind = 'job' AND array_id IS NULL AND finished_at IS NOT NULL",
    "reservations_ended_listed_of_user":
        "reservations (user_id, status, seq) WHERE kind = 'job' AND array_id IS NULL AND finished_at IS NOT NULL",
}  # fmt: skip
_BEFORE = {
    "reservations_ended_jobs": "reservations (status, seq) WHERE kind = 'job' AND finished_at IS NOT NULL",
    "reservations_ended_jobs_of_user":
        "reservations (user_id, status, seq) WHERE kind = 'job' AND finished_at IS NOT NULL",
}  # fmt: skip


def upgrade() -> None:
    """Execute the SQL file beside this one, and build indexes while the service goes on."""
    connection = op.get_bind()
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    execute_outside(connection, locked_script("reservations", script))
    for name, definition in _INDEXES.items():
        build_index(connection, name, definition)
    for name in _BEFORE:
        drop_index(connection, name)


def downgrade() -> None:
    """Unfinished arrays are cancelled. Their elements stay as jobs, and keep their ids."""
    connection = op.get_bind()
    notify = sql_of("0006_notifications")
    budgets = sql_of("0030_token_budgets")
    for statement in (
        *(f"CREATE INDEX {name} ON {definition}" for name, definition in _BEFORE.items()),
        "DROP TRIGGER reservations_store_arrays ON reservations",
        "DROP TRIGGER reservations_have_news_for_arrays ON reservations",
        "DROP FUNCTION note_array_news()",
        _function(notify, "notify_of_event"),
        _function(budgets, "give_back_to_budgets"),
        "DROP TABLE array_news, job_arrays",
        """UPDATE reservations SET status = 'cancelled', reason_code = 'cancelled_by_admin', finished_at = ledger_now(),
               reason = 'Arrays are not known any more.', version = version + 1, changed_at = ledger_now()
           WHERE array_size IS NOT NULL AND array_id IS NULL AND finished_at IS NULL""",
        "SET CONSTRAINTS ALL IMMEDIATE",  # A table with deferred checks to come can't be altered.
        # With the indexes and constraints on them.
        *(f"ALTER TABLE reservations DROP COLUMN array_{name}" for name in ("size", "parallel", "id", "index")),
        "ALTER TABLE reservations ALTER COLUMN seq SET INCREMENT BY 1",
        # The elements of the last array have numbers beyond its own.
        "SELECT setval(pg_get_serial_sequence('reservations', 'seq'), max(seq)) FROM reservations",
    ):
        connection.exec_driver_sql(statement)


def _function(script: str, name: str) -> str:
    """The definition of a function in a script."""
    begin = script.index(f"CREATE FUNCTION {name}()")
    body = script[begin : script.index("\nEND $$;", begin) + len("\nEND $$;")]
    return body.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
