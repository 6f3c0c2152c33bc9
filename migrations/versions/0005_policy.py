"""Rules, quotas and usage: policy as data."""

from pathlib import Path

from alembic import op

from reservation_core.adapters.postgres.scripts import execute_script

revision = "0005_policy"
down_revision = "0004_calendar"
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
