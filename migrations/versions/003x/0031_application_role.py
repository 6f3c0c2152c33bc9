"""A role that owns no table may work with the database."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0031_application_role"
down_revision = "0030_token_budgets"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """The owner works alone; what other roles were given stays with them, but for the functions."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
DROP FUNCTION let_application_work(text), drop_event_partition(timestamptz), make_event_partitions(integer);
ALTER FUNCTION drop_oldest_event_partition(timestamptz) RENAME TO drop_event_partition;
ALTER FUNCTION add_event_partitions(integer) RENAME TO make_event_partitions;
GRANT EXECUTE ON FUNCTION make_event_partition(text, text), make_event_partitions(integer),
    drop_event_partition(timestamptz) TO PUBLIC;
"""
