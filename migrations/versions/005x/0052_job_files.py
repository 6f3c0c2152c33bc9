"""Users send folders that their jobs begin with, and jobs keep results."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0052_job_files"
down_revision = "0051_gpu_health"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """All files are forgotten; jobs that wait for a start with a folder fail."""
    for table in ("job_results", "sent_folders", "sent_chunks", "sent_bytes"):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
    op.get_bind().exec_driver_sql("DROP FUNCTION count_sent_bytes()")
