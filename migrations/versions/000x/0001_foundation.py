"""People, inventory, reservations, the ledger, the record, the planner's lease, and PGMQ with its queues."""

from pathlib import Path

from alembic import op

from migrations.pgmq_installation import install_pgmq, remove_pgmq
from migrations.scripts import execute_script, require_extension

revision = "0001_foundation"
down_revision = None
branch_labels = None
depends_on = None

QUEUES = ("gpu_jobs", "pod_operations", "gpu_jobs_dlq", "pod_operations_dlq")

_DROP = """
DROP TABLE planner_lease, idempotency_keys, events, wait_estimates, allocations, reservations,
    gpus, nodes, tokens, users;
DROP FUNCTION events_are_append_only();
"""


def upgrade() -> None:
    """Execute the SQL file beside this one, and make the queues."""
    connection = op.get_bind()
    require_extension(connection, "btree_gist")
    execute_script(connection, Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    install_pgmq(connection, QUEUES)


def downgrade() -> None:
    """Drop everything, queues and messages too; extensions and a PGMQ that were there before stay (see remove_pgmq)."""
    connection = op.get_bind()
    remove_pgmq(connection, QUEUES)
    execute_script(connection, _DROP)
