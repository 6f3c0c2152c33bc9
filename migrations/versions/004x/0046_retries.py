"""Jobs may be retried."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables, sql_of

revision = "0046_retries"
down_revision = "0045_dependencies"
branch_labels = None
depends_on = None

_USAGE_BEFORE = "0023_long_history"


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "reservations, allocations")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Jobs are not retried any more; runs before their last one count as wasted. What makes usage is idempotent."""
    execute_script(op.get_bind(), sql_of(_USAGE_BEFORE))
    for statement in (
        "ALTER TABLE allocations DROP COLUMN ran_from",
        "ALTER TABLE reservations DROP COLUMN retry_max, DROP COLUMN retry_on, DROP COLUMN retried",
    ):
        op.get_bind().exec_driver_sql(statement)
