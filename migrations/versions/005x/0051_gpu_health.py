"""Errors and speeds of GPUs, quarantine with a reason, and who is notified of it."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0051_gpu_health"
down_revision = "0050_preemption"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "gpus, gpu_minutes, gpu_hours")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """GPUs that were quarantined stay so; nobody can see why."""
    for statement in (
        "DROP TRIGGER events_notify_digest ON events",
        "DROP FUNCTION notify_of_digest()",
        "DROP TABLE usage_digests",
        "DROP TRIGGER events_notify_health ON events",
        "DROP FUNCTION notify_of_gpu_health()",
        "DELETE FROM notice_preferences WHERE kind IN ('gpu_health', 'digest')",
        "DELETE FROM notice_events WHERE kind IN ('gpu_health', 'digest')",
        "DELETE FROM notice_kinds WHERE kind IN ('gpu_health', 'digest')",
        _NODE_CONDITIONS_BEFORE,
        "DROP FUNCTION gpu_use_of_holders(timestamptz, timestamptz)",
        "DROP TABLE gpu_errors, gpu_speeds, gpu_use_sums",
        "ALTER TABLE gpus DROP CONSTRAINT gpus_quarantine_check, DROP CONSTRAINT gpus_slow_check",
        *(f"ALTER TABLE gpus DROP COLUMN {name}" for name in _COLUMNS),
        "DROP FUNCTION gpu_use_points(integer, integer, timestamptz, timestamptz, interval)",
        _POINTS_BEFORE,
        "ALTER TABLE gpu_minutes DROP COLUMN unknown",
        "ALTER TABLE gpu_hours DROP COLUMN unknown",
    ):
        op.get_bind().exec_driver_sql(statement)


_COLUMNS = ("quarantined_at", "quarantined_by", "quarantine_reason", "quarantine_over_at", "slow_since", "slow_reason")

_NODE_CONDITIONS_BEFORE = """
CREATE OR REPLACE VIEW node_conditions AS
SELECT n.id AS node_id,
       n.ready AND n.schedulable AND n.removed_at IS NULL AND n.fenced_at IS NULL AND n.cordoned_at IS NULL
           AS available,
       nullif(concat_ws(' ',
           'Fenced by ' || n.fenced_by || ' at ' || to_char(n.fenced_at AT TIME ZONE 'UTC',
               'YYYY-MM-DD"T"HH24:MI:SS"Z"')
               || coalesce(' (' || n.fence_reason || ')', '') || ': nothing new is started here until `gpu-dev nodes '
               || 'unfence ' || n.name || '`.',
           'Cordoned by an administrator (' || n.cordoned_by || coalesce(': ' || n.cordon_reason, '') || ') at '
               || to_char(n.cordoned_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
               || ': what is here goes on, and nothing new is placed here until `gpu-dev nodes uncordon '
                   || n.name || '`.',
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
"""

_POINTS_BEFORE = """
CREATE FUNCTION gpu_use_points(gpu integer, resolution integer, start timestamptz, until timestamptz, step interval)
RETURNS TABLE (
    at timestamptz, samples bigint, utilisation_mean float8, utilisation smallint, memory_mean_kib float8,
        memory_kib integer,
    power_mean_w float8, power_w real, temperature_mean_c float8, temperature_c smallint, ecc_errors integer,
        xid smallint,
    processes smallint
) LANGUAGE sql STABLE AS $$
    SELECT date_bin(step, r.at, '1970-01-01Z'), sum(r.samples),
           sum(r.utilisation_mean * r.samples) / sum(r.samples) FILTER (WHERE r.utilisation_mean IS NOT NULL),
               max(r.utilisation),
           sum(r.memory_mean_kib * r.samples) / sum(r.samples) FILTER (WHERE r.memory_mean_kib IS NOT NULL),
               max(r.memory_kib),
           sum(r.power_mean_w * r.samples) / sum(r.samples) FILTER (WHERE r.power_mean_w IS NOT NULL), max(r.power_w),
           sum(r.temperature_mean_c * r.samples) / sum(r.samples) FILTER (WHERE r.temperature_mean_c IS NOT NULL),
           max(r.temperature_c), max(r.ecc_errors),
           (array_agg(r.xid ORDER BY r.at DESC) FILTER (WHERE r.xid IS NOT NULL))[1], max(r.processes)
    FROM (
        SELECT s.at, 1 AS samples, CAST(s.utilisation AS float8) AS utilisation_mean, s.utilisation,
               CAST(s.memory_kib AS float8) AS memory_mean_kib, s.memory_kib, CAST(s.power_w AS float8)
                   AS power_mean_w, s.power_w,
               CAST(s.temperature_c AS float8) AS temperature_mean_c, s.temperature_c, s.ecc_errors,
                   nullif(s.xid, 0) AS xid, s.processes
        FROM gpu_samples s
        WHERE gpu_use_points.resolution = 10 AND s.gpu_id = gpu_use_points.gpu
          AND s.at >= gpu_use_points.start AND s.at < gpu_use_points.until
        UNION ALL
        SELECT m.at, m.samples, m.utilisation_mean, m.utilisation, m.memory_mean_kib, m.memory_kib,
            m.power_mean_w, m.power_w,
               m.temperature_mean_c, m.temperature_c, m.ecc_errors, m.xid, m.processes
        FROM gpu_minutes m
        WHERE gpu_use_points.resolution = 60 AND m.gpu_id = gpu_use_points.gpu
          AND m.at >= gpu_use_points.start AND m.at < gpu_use_points.until
        UNION ALL
        SELECT h.at, h.samples, h.utilisation_mean, h.utilisation, h.memory_mean_kib, h.memory_kib,
            h.power_mean_w, h.power_w,
               h.temperature_mean_c, h.temperature_c, h.ecc_errors, h.xid, h.processes
        FROM gpu_hours h
        WHERE gpu_use_points.resolution = 3600 AND h.gpu_id = gpu_use_points.gpu
          AND h.at >= gpu_use_points.start AND h.at < gpu_use_points.until
    ) r GROUP BY 1
$$;
"""
