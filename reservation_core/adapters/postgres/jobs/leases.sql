-- name: end_signals_due
-- Running jobs so near to their end that they get the signal that they asked for.
SELECT id FROM reservations
WHERE status = 'running' AND end_signal IS NOT NULL AND signalled_at IS NULL
  AND ends_at - end_signal_before <= CAST(:now AS timestamptz)
ORDER BY ends_at LIMIT :limit;

-- name: gpus_needed
-- Running preemptible jobs whose time since they were asked for their GPUs is over, or whose GPUs are promised to others,
-- or in maintenance, so soon that their own time can't be renewed.
SELECT r.id FROM reservations r
WHERE r.status = 'running' AND r.preemptible
  AND CASE WHEN r.preempted_at IS NOT NULL THEN coalesce(r.signalled_at + r.end_signal_before, r.preempted_at) <= CAST(:now AS timestamptz)
      ELSE r.started_at + coalesce(r.min_runtime, '0') <= CAST(:now AS timestamptz) AND EXISTS (
          SELECT FROM allocations a
          JOIN allocations o ON o.gpu_id = a.gpu_id AND o.reservation_id <> a.reservation_id AND o.released_at IS NULL
          WHERE a.reservation_id = r.id AND a.released_at IS NULL
            AND lower(o.during) <= CAST(:now AS timestamptz) + coalesce(r.end_signal_before, '0') + make_interval(secs => CAST(:needs_s AS float8))) END
ORDER BY r.id LIMIT :limit;

-- name: renew_leases
-- The ranges of running preemptible jobs that are nearly over and whose GPUs nobody else has next last a while longer.
-- Ends are whole multiples of a while, so that many jobs have the same. The planner is told of them. Rows that are being
-- changed have their turn the next time.
WITH due AS (
    SELECT r.id, u.until
    FROM reservations r CROSS JOIN LATERAL (
        SELECT least(r.ends_at + make_interval(secs => CAST(:turnaround_s AS float8)), date_bin(
                   make_interval(secs => CAST(:while_s AS float8)), CAST(:now AS timestamptz)
                   + coalesce(r.end_signal_before, '0') + make_interval(secs => CAST(:needs_s AS float8)), 'epoch')) AS until
    ) u
    WHERE r.status = 'running' AND r.preemptible AND r.preempted_at IS NULL AND u.until > r.range_end
      AND r.range_end < CAST(:now AS timestamptz) + coalesce(r.end_signal_before, '0')
                        + make_interval(secs => CAST(:needs_s AS float8) - CAST(:while_s AS float8))
      AND NOT EXISTS (
          SELECT FROM allocations a
          JOIN allocations o ON o.gpu_id = a.gpu_id AND o.reservation_id <> a.reservation_id AND o.released_at IS NULL
          WHERE a.reservation_id = r.id AND a.released_at IS NULL AND lower(o.during) < u.until)
    ORDER BY r.id LIMIT :limit FOR NO KEY UPDATE OF r SKIP LOCKED
), moved AS (
    UPDATE allocations a SET during = tstzrange(lower(a.during), d.until)
    FROM due d WHERE a.reservation_id = d.id AND a.released_at IS NULL
    RETURNING a.id
), noted AS (
    UPDATE reservations r SET range_end = d.until FROM due d WHERE r.id = d.id
    RETURNING r.id
), sent AS (
    SELECT pgmq.send_batch('gpu_jobs', array_agg(jsonb_build_object('v', 1, 'kind', 'changed', 'id', id))) FROM noted
    HAVING count(*) > 0
)
SELECT (SELECT count(*) FROM noted) AS renewed, (SELECT count(*) FROM moved) AS cards, (SELECT count(*) FROM sent) AS sent;
