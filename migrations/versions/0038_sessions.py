"""People enter their running jobs, and share them."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0038_sessions"
down_revision = "0037_cost_per_gpu_hour"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Nobody enters a job; keys and shares are forgotten."""
    op.get_bind().exec_driver_sql("DROP TABLE connections, job_shares, ssh_server_keys, ssh_keys")
