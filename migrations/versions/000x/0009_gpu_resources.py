"""Nodes whose cards are asked for by different resources."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0009_gpu_resources"
down_revision = "0008_late_creates"
branch_labels = None
depends_on = None

_DROP = """
ALTER TABLE nodes DROP COLUMN gpu_resource;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the column."""
    execute_script(op.get_bind(), _DROP)
