"""Cordons of nodes, and the record by time and by subject."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0020_cordons_and_audit"
down_revision = "0019_web_sessions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Cordons are forgotten: what they kept things from can be had again."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
DROP INDEX events_subject;
DROP INDEX events_time;
CREATE OR REPLACE VIEW node_conditions AS
SELECT n.id AS node_id,
       n.ready AND n.schedulable AND n.removed_at IS NULL AND n.fenced_at IS NULL AS available,
       nullif(concat_ws(' ',
           'Fenced by ' || n.fenced_by || ' at '
               || to_char(n.fenced_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
               || coalesce(' (' || n.fence_reason || ')', '') || ': nothing new is started here until `gpu-dev nodes '
               || 'unfence ' || n.name || '`.',
           CASE WHEN n.detail IS NULL AND n.removed_at IS NULL AND NOT n.ready
                THEN 'It does not answer: its GPUs are quarantined until it is back.' END,
           CASE WHEN n.detail IS NULL AND n.removed_at IS NULL AND n.ready AND NOT n.schedulable
                THEN 'It takes no new pods.' END,
           n.detail,
           (SELECT string_agg('A pod that the ledger does not know holds GPUs ' || array_to_string(u.gpu_indices, ',')
                              || ' here: they are not given out until it ends (operators: `gpu-dev pods`).', ' '
                              ORDER BY u.name)
            FROM unknown_pods u WHERE u.node = n.name)
       ), '') AS detail
FROM nodes n;
CREATE OR REPLACE VIEW gpu_status AS
SELECT n.name                                                  AS node,
       g.index,
       g.gpu_type,
       CASE WHEN h.kind = 'maintenance' THEN 'maintenance'
            WHEN c.condition <> 'usable' THEN c.condition
            WHEN h.id IS NULL THEN 'free' ELSE 'held' END      AS state,
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
    SELECT r.id, r.kind, u.name AS user_name, lower(a.during) AS since, upper(a.during) AS free_at
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    WHERE a.gpu_id = g.id AND a.released_at IS NULL AND (a.held OR a.during @> statement_timestamp())
    ORDER BY a.held DESC, a.booking_id IS NULL
    LIMIT 1
) h ON true
ORDER BY n.name, g.index;
ALTER TABLE nodes DROP COLUMN cordon_reason, DROP COLUMN cordoned_by, DROP COLUMN cordoned_at;
"""
