"""When a promised start was found to be missed: recorded once for each promise, however long events are kept."""

from alembic import op

revision = "0022_missed_starts"
down_revision = "0021_ledger_clock"
branch_labels = None
depends_on = None

# Promises of jobs that are over are never judged again.
_NOTE_RECORDED = """
UPDATE start_promises p SET missed_at = e.at
FROM reservations r JOIN events e ON e.reservation_id = r.id AND e.kind = 'start_promise_missed'
WHERE r.id = p.reservation_id AND r.status IN ('queued', 'starting', 'running', 'ending')
"""


def upgrade() -> None:
    """Add the column, and note what was recorded before."""
    op.execute("ALTER TABLE start_promises ADD COLUMN missed_at timestamptz")
    op.execute(_NOTE_RECORDED)


def downgrade() -> None:
    """Forget it: the events themselves stay."""
    op.execute("ALTER TABLE start_promises DROP COLUMN missed_at")
