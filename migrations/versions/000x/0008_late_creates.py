"""Creates that were given up, and may be carried out all the same."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0008_late_creates"
down_revision = "0007_maintenance"
branch_labels = None
depends_on = None

_DROP = """
ALTER TABLE reservations DROP COLUMN unsettled_until;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the column."""
    execute_script(op.get_bind(), _DROP)
