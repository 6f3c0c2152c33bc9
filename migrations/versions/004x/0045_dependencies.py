"""Jobs wait for other jobs."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0045_dependencies"
down_revision = "0044_gpu_use"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "reservations")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Held jobs wait for GPUs like all others."""
    for statement in (
        "DROP TRIGGER reservations_have_news_for_dependants ON reservations",
        "DROP TABLE job_dependencies",
        "DROP FUNCTION tell_dependants(), dependency_is_older()",
        "ALTER TABLE reservations DROP COLUMN held",
    ):
        op.get_bind().exec_driver_sql(statement)
