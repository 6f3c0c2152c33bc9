"""Maintenance windows, the waitlist and what is released unused."""

from pathlib import Path

from alembic import op

from reservation_core.adapters.postgres.scripts import execute_script

revision = "0007_maintenance"
down_revision = "0006_notifications"
branch_labels = None
depends_on = None

_DROP = """
SELECT 1;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Take it back."""
    execute_script(op.get_bind(), _DROP)
