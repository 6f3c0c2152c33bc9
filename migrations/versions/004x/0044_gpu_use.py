"""Samples of the use of GPUs, and their roll-ups."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0044_gpu_use"
down_revision = "0043_user_secrets"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop all samples."""
    for statement in (
        "DROP FUNCTION let_application_work(text)",
        "ALTER FUNCTION let_application_work_before_gpu_use(text) RENAME TO let_application_work",
        "DROP FUNCTION make_gpu_use_partitions(), drop_gpu_use_partition()",
        "DROP FUNCTION gpu_use_points(integer, integer, timestamptz, timestamptz, interval)",
        "DROP VIEW gpu_use_partitions",
        "DROP TABLE gpu_samples, gpu_minutes, gpu_hours, gpu_use_state",
    ):
        op.get_bind().exec_driver_sql(statement)
