"""Maintenance windows, the waitlist and what is released unused."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0007_maintenance"
down_revision = "0006_notifications"
branch_labels = None
depends_on = None

# Windows go, with what hangs on them but the record: nobody would end those that are open. The view for people becomes
# that of 0003.
_DROP = """
DELETE FROM allocations a USING reservations r
WHERE r.id = a.reservation_id AND r.kind = 'maintenance' AND a.released_at IS NULL;
UPDATE reservations SET status = 'cancelled', finished_at = now()
WHERE kind = 'maintenance' AND finished_at IS NULL;
DROP TABLE maintenance_windows;
DROP INDEX reservations_unended_in_bookings;
ALTER TABLE bookings DROP COLUMN start_warned_at, DROP COLUMN end_warned_at, DROP COLUMN no_show_warned_at;
CREATE OR REPLACE VIEW gpu_status AS
SELECT n.name                                                  AS node,
       g.index,
       g.gpu_type,
       CASE WHEN c.condition <> 'usable' THEN c.condition WHEN h.id IS NULL THEN 'free' ELSE 'held' END AS state,
       h.id                                                    AS holder,
       h.user_name,
       h.since,
       h.free_at,
       CASE WHEN n.removed_at IS NOT NULL THEN 'removed'
            WHEN n.fenced_at IS NOT NULL THEN 'fenced'
            WHEN NOT n.ready THEN 'not ready'
            WHEN NOT n.schedulable THEN 'not schedulable'
            ELSE 'ready' END                                   AS node_state,
       s.detail                                                AS node_detail,
       g.uuid
FROM gpus g
JOIN nodes n ON n.id = g.node_id
JOIN card_conditions c ON c.gpu_id = g.id
JOIN node_conditions s ON s.node_id = n.id
LEFT JOIN LATERAL (
    SELECT r.id, u.name AS user_name, lower(a.during) AS since, upper(a.during) AS free_at
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    WHERE a.gpu_id = g.id AND a.released_at IS NULL AND (a.held OR a.during @> statement_timestamp())
    ORDER BY a.held DESC
    LIMIT 1
) h ON true
ORDER BY n.name, g.index;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Take it back."""
    execute_script(op.get_bind(), _DROP)
