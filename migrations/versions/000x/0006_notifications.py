"""Being told: who wants to hear of what, and by which way."""

from pathlib import Path

from alembic import op

from migrations.pgmq_installation import create_queues, drop_queues
from migrations.scripts import execute_script

revision = "0006_notifications"
down_revision = "0005_policy"
branch_labels = None
depends_on = None

QUEUES = ("notifications", "notifications_dlq")

_DROP = """
DROP TRIGGER events_notify ON events;
DROP FUNCTION notify_of_event;
DROP TABLE notice_preferences, notice_targets, notice_events, notice_kinds;
"""


def upgrade() -> None:
    """Make the queue, then execute the SQL file beside this one."""
    connection = op.get_bind()
    create_queues(connection, QUEUES)
    execute_script(connection, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Take it back; notices that were not delivered are lost."""
    connection = op.get_bind()
    execute_script(connection, _DROP)
    drop_queues(connection, QUEUES)
