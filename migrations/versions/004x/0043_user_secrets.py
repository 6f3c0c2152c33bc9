"""Users have secrets, which their jobs get."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0043_user_secrets"
down_revision = "0042_learnt_waits"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """All secrets are forgotten; jobs that wait for one keep its name."""
    op.get_bind().exec_driver_sql("DROP TABLE user_secrets")
