"""Users have disks, which outlive the jobs that use them."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0053_disks"
down_revision = "0052_job_files"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "users, reservations")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """All disks are forgotten; what is on them stays with the cluster."""
    for statement in (
        "DROP FUNCTION jobs_of_disk(text)",
        "DROP TABLE disk_uses",
        "DROP TABLE disks",
        "DROP FUNCTION keep_disk_in_use()",
    ):
        op.get_bind().exec_driver_sql(statement)
