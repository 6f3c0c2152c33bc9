"""Being told: who wants to hear of what, and by which way."""

from pathlib import Path

from alembic import op

from reservation_core.adapters.postgres.scripts import execute_script

revision = "0006_notifications"
down_revision = "0005_policy"
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
