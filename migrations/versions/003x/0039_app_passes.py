"""People open apps of their jobs in browsers."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0039_app_passes"
down_revision = "0038_sessions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Nobody opens an app."""
    op.get_bind().exec_driver_sql("DROP TABLE app_passes")
