"""What clusters that fail need: starts that are tried again, logs that are kept, what is known of nodes and pods."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0003_cluster"
down_revision = "0002_views"
branch_labels = None
depends_on = None

# Starts that are tried again, and kept logs.
_DROP_STARTS_AND_LOGS = """
DROP TABLE pod_logs;
UPDATE reservations SET outcome = 'failed' WHERE outcome = 'queued';
ALTER TABLE reservations
    DROP COLUMN avoid_nodes,
    DROP CONSTRAINT reservations_outcome_check,
    ADD CONSTRAINT reservations_outcome_check CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'expired'));
"""

# The tables of observed nodes and pods. The views for people become those of the revision before.
_DROP_NODES_AND_PODS = """
DROP VIEW reservation_history, gpu_status, queue_status;
DROP FUNCTION request_text;
DROP VIEW node_conditions, card_conditions;
DROP TABLE unknown_pods;
ALTER TABLE nodes
    DROP CONSTRAINT nodes_fence_check,
    DROP COLUMN fence_reason,
    DROP COLUMN fenced_by,
    DROP COLUMN fenced_at,
    DROP COLUMN taints,
    DROP COLUMN logical_name,
    DROP COLUMN zone;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Take it all back, the newest first. A job that was to be queued again is ended as failed."""
    connection = op.get_bind()
    execute_script(connection, _DROP_NODES_AND_PODS)
    execute_script(connection, Path(__file__).with_name("0002_views.sql").read_text(encoding="utf-8"))
    execute_script(connection, _DROP_STARTS_AND_LOGS)
