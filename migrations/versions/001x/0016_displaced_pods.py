"""Owners of pods that had to go before their time are told."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0016_displaced_pods"
down_revision = "0015_gpu_links"
branch_labels = None
depends_on = None

_DROP = """
DROP TRIGGER events_notify_displaced ON events;
DROP FUNCTION notify_of_displaced_pod();
DELETE FROM notice_events WHERE event = 'pod_displaced';
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Nobody is told of it any more."""
    execute_script(op.get_bind(), _DROP)
