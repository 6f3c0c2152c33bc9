"""Views for people with `psql`: who waits, which card is whose, and what has been."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0002_views"
down_revision = "0001_foundation"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the views."""
    execute_script(
        op.get_bind(), "DROP VIEW reservation_history, gpu_status, queue_status; DROP FUNCTION request_text;"
    )
