"""A rule about idle GPUs may send jobs back to the queue."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0054_idle_requeue"
down_revision = "0053_disks"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "policies")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Rules that send jobs back to the queue only warn."""
    for statement in (
        "UPDATE policies SET idle_then = 'warn' WHERE idle_then = 'requeue'",
        "ALTER TABLE policies DROP CONSTRAINT policies_idle_then_check",
        "ALTER TABLE policies ADD CONSTRAINT policies_idle_then_check CHECK (idle_then IN ('warn', 'release'))",
    ):
        op.get_bind().exec_driver_sql(statement)
