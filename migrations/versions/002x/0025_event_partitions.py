"""The audit log by months; all that was recorded before becomes its first partition, as it is.

Runs beside the service: see `outside_transaction`. Every step may have been done before.
"""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_outside, execute_script

revision = "0025_event_partitions"
down_revision = "0024_retention"
branch_labels = None
depends_on = None


outside_transaction = True


def upgrade() -> None:
    """Check old rows while the service goes on; then all at once, which takes moments, the SQL file beside this one."""
    connection = op.get_bind()
    kind = "SELECT relkind FROM pg_class WHERE oid = CAST('events' AS regclass)"
    if connection.exec_driver_sql(kind).scalar_one() in ("p", b"p"):
        return
    execute_outside(connection, "ALTER TABLE events VALIDATE CONSTRAINT events_before_partitions")
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    execute_outside(connection, f"BEGIN;\n{script}\nCOMMIT;")


def downgrade() -> None:
    """One table again, which copies all of it."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
DROP FUNCTION drop_event_partition(timestamptz);
DROP FUNCTION make_event_partitions(integer);
DROP VIEW event_partitions;
DROP FUNCTION make_event_partition(text, text);
DO $$
DECLARE
    next_id   bigint;
    indexes   text[];
    triggers  text[];
    statement text;
BEGIN
    LOCK TABLE events IN ACCESS EXCLUSIVE MODE;
    SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END INTO next_id FROM events_id_seq;
    SELECT array_agg(replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ') ORDER BY indexrelid) INTO indexes
    FROM pg_index WHERE indrelid = 'events'::regclass;
    SELECT array_agg(pg_get_triggerdef(oid) ORDER BY tgname) INTO triggers
    FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal;
    CREATE TABLE events_whole (LIKE events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE);
    INSERT INTO events_whole SELECT * FROM events ORDER BY id;
    DROP TABLE events;
    ALTER TABLE events_whole RENAME TO events;
    EXECUTE format('ALTER TABLE events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (START WITH %s)', next_id);
    ALTER TABLE events ADD CONSTRAINT events_pkey PRIMARY KEY (id);
    FOREACH statement IN ARRAY indexes || triggers LOOP
        EXECUTE statement;
    END LOOP;
END $$;
"""
