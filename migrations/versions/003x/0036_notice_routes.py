"""Processors say where notifications can go, and the API refuses other targets."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0036_notice_routes"
down_revision = "0035_booked_time_in_the_past"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Targets are accepted wherever they are."""
    op.get_bind().exec_driver_sql("DROP TABLE notice_routes")
