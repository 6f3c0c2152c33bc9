"""Jobs have traces."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0055_traces"
down_revision = "0054_idle_requeue"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "reservations")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Jobs lose their traces, which collectors keep."""
    op.get_bind().exec_driver_sql("ALTER TABLE reservations DROP COLUMN trace")
