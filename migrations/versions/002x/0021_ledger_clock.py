"""A time for the ledger that goes on evenly when the database's clock steps."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0021_ledger_clock"
down_revision = "0020_cordons_and_audit"
branch_labels = None
depends_on = None


# What reads the time in functions and views that earlier migrations made.
_REPLACE = """
DO $$
DECLARE
    made record;
BEGIN
    FOR made IN
        SELECT format('CREATE OR REPLACE VIEW %I AS %s', v.viewname, v.definition) AS sql
        FROM pg_views v WHERE v.schemaname = current_schema() AND v.viewname = 'gpu_status'
        UNION ALL SELECT pg_get_functiondef(p.oid) FROM pg_proc p
        WHERE p.pronamespace = CAST(current_schema() AS regnamespace) AND p.proname = 'may_name'
    LOOP
        EXECUTE {replaced};
    END LOOP;
END $$;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one, then let views and functions go by it."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    by_ledger = r"regexp_replace(made.sql, '\y(clock|statement)_timestamp\(\)', 'ledger_now()', 'g')"
    execute_script(op.get_bind(), _REPLACE.format(replaced=by_ledger))


def downgrade() -> None:
    """Go by the database's own clock again, wherever a step has left it."""
    by_database = "replace(made.sql, 'ledger_now()', 'clock_timestamp()')"
    execute_script(op.get_bind(), _REPLACE.format(replaced=by_database))
    execute_script(op.get_bind(), _DROP)


_DROP = """
DROP VIEW clock_steps;
DROP FUNCTION ledger_time(timestamptz);
DROP FUNCTION ledger_now();
DROP TABLE ledger_clock;
"""
