-- Counts for metrics. Every statement uses an index, however many jobs there were.

-- name: unended_job_counts
-- Jobs that wait or hold GPUs, by status; a partial index answers every part of the sum. Only jobs have these statuses. Of
-- arrays the elements count, and not their own rows.
SELECT status, sum(jobs) AS jobs FROM (
    SELECT status, count(*) AS jobs FROM reservations WHERE status = 'queued' AND booking_id IS NULL GROUP BY status
    UNION ALL
    SELECT 'queued', -count(*) FROM reservations WHERE array_size IS NOT NULL AND array_id IS NULL AND finished_at IS NULL
    HAVING count(*) > 0
    UNION ALL
    SELECT status, count(*) FROM reservations
    WHERE status = 'queued' AND booking_id IS NOT NULL AND status IN ('queued', 'starting', 'running') GROUP BY status
    UNION ALL
    SELECT status, count(*) FROM reservations WHERE status IN ('starting', 'running', 'ending') GROUP BY status
) AS counted GROUP BY status HAVING sum(jobs) > 0;

-- name: newest_settled_event
-- The newest event before a time, scanning the audit log backwards.
SELECT id FROM events WHERE at < :settled_before ORDER BY id DESC LIMIT 1;

-- name: ended_jobs
-- Jobs whose final event is in a range of the audit log, in order. Those that were queued again have their former starts in
-- the ledger.
SELECT e.id AS event_id, r.status, r.created_at, r.started_at, r.finished_at,
       least(r.started_at, (SELECT min(a.ran_from) FROM allocations a
                            WHERE a.reservation_id = r.id AND (r.attempt > 1 OR r.started_at IS NULL))) AS first_started_at
FROM events e JOIN reservations r ON r.id = e.reservation_id
WHERE e.id > :after_event AND e.id <= :up_to_event AND e.before IS DISTINCT FROM e.after
  AND e.after IN ('succeeded', 'failed', 'cancelled', 'expired') AND r.finished_at IS NOT NULL AND r.kind = 'job'
  AND (r.array_size IS NULL OR r.array_id IS NOT NULL)
ORDER BY e.id LIMIT :limit;

-- name: calendar_events
-- Counts of events about bookings, maintenance windows and promises in a range of the audit log.
SELECT e.kind, r.kind AS of, count(*) AS events
FROM events e JOIN reservations r ON r.id = e.reservation_id
WHERE e.id > :after_event AND e.id <= :up_to_event
  AND (e.kind LIKE 'booking\_%' OR e.kind LIKE 'maintenance\_%' OR e.kind IN ('no_show_warning', 'start_promise_missed'))
GROUP BY e.kind, r.kind ORDER BY e.kind, r.kind;

-- name: judged_predictions
-- Of the first starts in a range of the audit log, those that were predicted: how many, and how many came by the first
-- p50 and by the first p90. OFFSET 0 keeps the subqueries lookups by key.
SELECT count(*) AS starts,
       count(*) FILTER (WHERE e.at <= p.first_p50 + make_interval(secs => :slack_s)) AS by_p50,
       count(*) FILTER (WHERE e.at <= p.first_p90 + make_interval(secs => :slack_s)) AS by_p90
FROM events e
CROSS JOIN LATERAL (
    SELECT first_p50, first_p90 FROM start_promises WHERE reservation_id = e.reservation_id OFFSET 0
) AS p
WHERE e.id > :after_event AND e.id <= :up_to_event AND e.kind = 'allocated' AND p.first_p50 IS NOT NULL
  AND NOT EXISTS (SELECT FROM events f
                  WHERE f.reservation_id = e.reservation_id AND f.kind = 'allocated' AND f.id < e.id OFFSET 0);

-- name: jobs_to_simulate
-- The newest jobs, everybody's or one user's, that were submitted since a time, newest first. So many jobs are looked at
-- and no more; of the two parts one is executed.
WITH newest AS MATERIALIZED (
    (SELECT seq, user_id, gpus, nodes, gpu_type, priority, project, created_at, started_at, finished_at, duration, booking_id,
            preemptible, min_runtime, end_signal, end_signal_before
     FROM reservations WHERE CAST(:user_id AS bigint) IS NULL AND kind = 'job'
     ORDER BY seq DESC LIMIT :scanned)
    UNION ALL
    (SELECT seq, user_id, gpus, nodes, gpu_type, priority, project, created_at, started_at, finished_at, duration, booking_id,
            preemptible, min_runtime, end_signal, end_signal_before
     FROM reservations WHERE user_id = CAST(:user_id AS bigint) AND kind = 'job'
     ORDER BY seq DESC LIMIT :scanned)
)
SELECT seq, user_id, gpus, nodes, gpu_type, priority, project, created_at, started_at, finished_at,
       CAST(extract(epoch FROM duration) AS float8) AS duration_s, booking_id IS NOT NULL AS in_booking,
       preemptible, min_runtime, end_signal, end_signal_before
FROM newest WHERE created_at >= :since AND gpus > 0
ORDER BY seq DESC;

-- name: bookings_to_simulate
-- The bookings that begin last, everybody's or one user's, of those that had GPUs since a time. One from the waitlist has
-- them since its rows were written, others since they were made; one that was cancelled before its start has no rows any
-- more. So many bookings are looked at and no more, of one user so many of each status, which is how an index has them;
-- of the two parts one is executed.
WITH newest AS MATERIALIZED (
    (SELECT id, starts_at, ends_at, node_id, waits_until FROM bookings
     WHERE CAST(:user_id AS bigint) IS NULL
       AND starts_at > CAST(:since AS timestamptz) - CAST(:longest AS interval)
     ORDER BY starts_at DESC LIMIT :scanned)
    UNION ALL
    (SELECT b.* FROM unnest(CAST(:every_status AS text[])) AS s (status) CROSS JOIN LATERAL (
         SELECT id, starts_at, ends_at, node_id, waits_until FROM bookings
         WHERE CAST(:user_id AS bigint) IS NOT NULL AND user_id = CAST(:user_id AS bigint) AND status = s.status
           AND starts_at > CAST(:since AS timestamptz) - CAST(:longest AS interval)
         ORDER BY starts_at DESC LIMIT :scanned) b
     ORDER BY starts_at DESC LIMIT :scanned)
), placed AS (
    SELECT r.id, r.user_id, r.project, r.gpus, r.nodes, r.gpu_type, n.name AS node, b.starts_at, b.ends_at,
           CASE WHEN b.waits_until IS NULL THEN r.created_at
                ELSE (SELECT min(a.created_at) FROM allocations a WHERE a.reservation_id = b.id) END AS made_at,
           least(b.ends_at, r.finished_at) AS until
    FROM newest b
    JOIN reservations r ON r.id = b.id
    LEFT JOIN nodes n ON n.id = b.node_id
)
SELECT * FROM placed WHERE made_at < until AND until > CAST(:since AS timestamptz) ORDER BY made_at, id;
