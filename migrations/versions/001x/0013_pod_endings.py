"""Memories of pods that people made, until the pods are gone."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0013_pod_endings"
down_revision = "0012_what_jobs_name"
branch_labels = None
depends_on = None

_DROP = """
DROP TABLE pod_endings;
DELETE FROM notice_events WHERE event = 'pod_end_warned';
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the table; who ends pods reads them anew."""
    execute_script(op.get_bind(), _DROP)
