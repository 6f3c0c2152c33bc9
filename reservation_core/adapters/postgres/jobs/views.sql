-- name: view_reservation
-- One job with what it is told while it waits, and (for its owner) with whom it is shared. Users see their own jobs
-- and those that are shared with them, a null user everybody's.
SELECT r.*, u.name AS user_name, e.position, e.estimated_start_at, e.estimated_start_p50, e.estimated_start_p90,
       e.reason_code AS wait_code, e.reason AS wait_reason, p.promised_start_at, (
           SELECT lower(a.during) FROM allocations a
           WHERE a.reservation_id = r.id AND a.planned AND r.status = 'queued' LIMIT 1
       ) AS slot_start, CASE WHEN r.user_id = coalesce(CAST(:user_id AS bigint), r.user_id) THEN ARRAY(
           SELECT w.name FROM job_shares s JOIN users w ON w.id = s.user_id
           WHERE s.reservation_id = r.id ORDER BY w.name
       ) END AS shared_with
FROM reservations r JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates e ON e.reservation_id = r.id AND r.status = 'queued'
LEFT JOIN start_promises p ON p.reservation_id = r.id
WHERE r.id = :id AND r.kind = 'job' AND (
    CAST(:user_id AS bigint) IS NULL OR r.user_id = :user_id
    OR EXISTS (SELECT FROM job_shares s
               WHERE s.reservation_id IN (:id, r.array_id) AND s.user_id = CAST(:user_id AS bigint))
);

-- name: view_reservations
-- Jobs and arrays, without the elements of these, newest first: everybody's or (with `user_id`) one user's, of all statuses or of some. Of the four parts one or
-- two are executed, each by an index in the order of the page: jobs that are not over are few, however many there were.
-- Of the others, an equation of the status would let the planner take the index of all jobs, and walk the whole history
-- for a status that few had.
WITH page AS MATERIALIZED (
    (SELECT id, seq FROM reservations
     WHERE CAST(:user_id AS bigint) IS NULL AND CAST(:statuses AS text[]) IS NULL
       AND kind = 'job' AND array_id IS NULL AND seq < :before_seq
     ORDER BY seq DESC LIMIT :limit)
    UNION ALL
    (SELECT id, seq FROM reservations
     WHERE user_id = CAST(:user_id AS bigint) AND CAST(:statuses AS text[]) IS NULL
       AND kind = 'job' AND array_id IS NULL AND seq < :before_seq
     ORDER BY seq DESC LIMIT :limit)
    UNION ALL
    (SELECT id, seq FROM reservations
     WHERE CAST(:statuses AS text[]) && ARRAY['queued', 'starting', 'running', 'ending']
       AND (CAST(:user_id AS bigint) IS NULL OR user_id = CAST(:user_id AS bigint))
       AND kind = 'job' AND array_id IS NULL AND finished_at IS NULL AND seq < :before_seq
       AND (CASE WHEN array_size IS NULL THEN status WHEN reason_code IN ('cancelled_by_user', 'cancelled_by_admin') THEN 'ending'
                 WHEN started_at IS NULL THEN status ELSE 'running' END) = ANY(CAST(:statuses AS text[]))
     ORDER BY seq DESC LIMIT :limit)
    UNION ALL
    (SELECT r.id, r.seq FROM unnest(CAST(:statuses AS text[])) AS s (status) CROSS JOIN LATERAL (
         SELECT id, seq FROM reservations
         WHERE CAST(:user_id AS bigint) IS NULL AND kind = 'job' AND array_id IS NULL AND finished_at IS NOT NULL
           AND status >= s.status AND (status, seq) < (s.status, :before_seq)
         ORDER BY status DESC, seq DESC LIMIT :limit) r)
    UNION ALL
    (SELECT r.id, r.seq FROM unnest(CAST(:statuses AS text[])) AS s (status) CROSS JOIN LATERAL (
         SELECT id, seq FROM reservations
         WHERE user_id = CAST(:user_id AS bigint) AND kind = 'job' AND array_id IS NULL AND finished_at IS NOT NULL
           AND status >= s.status AND (status, seq) < (s.status, :before_seq)
         ORDER BY status DESC, seq DESC LIMIT :limit) r)
)
SELECT r.*, u.name AS user_name, e.position, e.estimated_start_at, e.estimated_start_p50, e.estimated_start_p90,
       e.reason_code AS wait_code, e.reason AS wait_reason, p.promised_start_at, (
           SELECT lower(a.during) FROM allocations a
           WHERE a.reservation_id = r.id AND a.planned AND r.status = 'queued' LIMIT 1
       ) AS slot_start, ARRAY(
           SELECT w.name FROM job_shares s JOIN users w ON w.id = s.user_id
           WHERE s.reservation_id = r.id ORDER BY w.name
       ) AS shared_with
FROM (SELECT id FROM page ORDER BY seq DESC LIMIT :limit) of
JOIN reservations r ON r.id = of.id
JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates e ON e.reservation_id = r.id AND r.status = 'queued'
LEFT JOIN start_promises p ON p.reservation_id = r.id
ORDER BY r.seq DESC;

-- name: view_elements
-- Elements of an array, of all statuses or of some, in order.
SELECT r.*, u.name AS user_name, e.position, e.estimated_start_at, e.estimated_start_p50, e.estimated_start_p90,
       e.reason_code AS wait_code, e.reason AS wait_reason, p.promised_start_at, (
           SELECT lower(a.during) FROM allocations a
           WHERE a.reservation_id = r.id AND a.planned AND r.status = 'queued' LIMIT 1
       ) AS slot_start, CAST(NULL AS text[]) AS shared_with
FROM reservations r JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates e ON e.reservation_id = r.id AND r.status = 'queued'
LEFT JOIN start_promises p ON p.reservation_id = r.id
WHERE r.array_id = :array_id AND r.array_index > :after AND r.array_index < :before
  AND (CAST(:statuses AS text[]) IS NULL OR r.status = ANY(CAST(:statuses AS text[])))
ORDER BY r.array_index LIMIT :limit;

-- name: view_next_elements
-- Of each of these arrays the first element that waits.
SELECT r.*, u.name AS user_name, e.position, e.estimated_start_at, e.estimated_start_p50, e.estimated_start_p90,
       e.reason_code AS wait_code, e.reason AS wait_reason, p.promised_start_at, (
           SELECT lower(a.during) FROM allocations a
           WHERE a.reservation_id = r.id AND a.planned AND r.status = 'queued' LIMIT 1
       ) AS slot_start, CAST(NULL AS text[]) AS shared_with
FROM unnest(CAST(:array_ids AS text[])) AS of (id)
CROSS JOIN LATERAL (
    SELECT * FROM reservations w
    WHERE w.array_id = of.id AND w.finished_at IS NULL AND w.status = 'queued' ORDER BY w.array_index LIMIT 1
) r
JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates e ON e.reservation_id = r.id
LEFT JOIN start_promises p ON p.reservation_id = r.id;

-- name: view_shared
-- Jobs of others that are shared with a user, of all owners or of one, of all statuses or of some: the last shared first.
-- So many shares are looked at and no more.
WITH shares AS MATERIALIZED (
    SELECT reservation_id, created_at FROM job_shares
    WHERE user_id = :user_id AND (created_at, reservation_id) < (CAST(:before_at AS timestamptz), :before_id)
    ORDER BY created_at DESC, reservation_id DESC LIMIT :scanned
), page AS MATERIALIZED (
    SELECT s.reservation_id, s.created_at FROM shares s JOIN reservations r ON r.id = s.reservation_id
    WHERE (CAST(:owner_id AS bigint) IS NULL OR r.user_id = CAST(:owner_id AS bigint))
      AND (CAST(:statuses AS text[]) IS NULL OR r.status = ANY(CAST(:statuses AS text[])))
    ORDER BY s.created_at DESC, s.reservation_id DESC LIMIT :limit
)
SELECT r.*, u.name AS user_name, e.position, e.estimated_start_at, e.estimated_start_p50, e.estimated_start_p90,
       e.reason_code AS wait_code, e.reason AS wait_reason, p.promised_start_at, (
           SELECT lower(a.during) FROM allocations a
           WHERE a.reservation_id = r.id AND a.planned AND r.status = 'queued' LIMIT 1
       ) AS slot_start, CAST(NULL AS text[]) AS shared_with, of.created_at AS shared_at
FROM page of
JOIN reservations r ON r.id = of.reservation_id
JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates e ON e.reservation_id = r.id AND r.status = 'queued'
LEFT JOIN start_promises p ON p.reservation_id = r.id
ORDER BY of.created_at DESC, of.reservation_id DESC;

-- name: view_waiting
-- Who waits, in line order; a null user sees everybody. The lines of all types are merged from the beginning of each, so
-- that a page costs the same however long they are.
WITH RECURSIVE types AS (
    (SELECT line_type FROM reservations WHERE status = 'queued' AND booking_id IS NULL ORDER BY line_type LIMIT 1)
    UNION ALL
    SELECT (SELECT r.line_type FROM reservations r WHERE r.status = 'queued' AND r.booking_id IS NULL AND r.line_type > t.line_type
            ORDER BY r.line_type LIMIT 1)
    FROM types t WHERE t.line_type IS NOT NULL
), first AS (
    SELECT w.* FROM types t CROSS JOIN LATERAL (
        SELECT * FROM reservations r
        WHERE r.status = 'queued' AND r.booking_id IS NULL AND r.kind = 'job' AND r.line_type = t.line_type
          AND (r.array_size IS NULL OR r.array_id IS NOT NULL) AND (r.line_priority, r.seq) > (:after_priority, :after_seq)
          AND (CAST(:user_id AS bigint) IS NULL OR r.user_id = :user_id)
        ORDER BY r.line_type, r.line_priority, r.seq LIMIT :limit
    ) w
    WHERE t.line_type IS NOT NULL
)
SELECT r.*, u.name AS user_name, e.position, e.estimated_start_at, e.estimated_start_p50, e.estimated_start_p90,
       e.reason_code AS wait_code, e.reason AS wait_reason, p.promised_start_at, (
           SELECT lower(a.during) FROM allocations a
           WHERE a.reservation_id = r.id AND a.planned AND r.status = 'queued' LIMIT 1
       ) AS slot_start, CAST(NULL AS text[]) AS shared_with
FROM first r JOIN users u ON u.id = r.user_id
LEFT JOIN wait_estimates e ON e.reservation_id = r.id
LEFT JOIN start_promises p ON p.reservation_id = r.id
ORDER BY r.line_priority, r.seq LIMIT :limit;

-- name: places_behind_the_told
-- For jobs that the planner has told no place: how many stand in their line up to and including each, how many that were
-- told a place come after it by key (shares and sizes order equals), and whether it has a place by now: the planner has given it a
-- slot, or has told others something since it came. The keys of one line come in order: each part is walked once.
WITH told AS MATERIALIZED (
    SELECT r.line_type, r.line_priority, r.seq, e.planned_at
    FROM wait_estimates e JOIN reservations r ON r.id = e.reservation_id
    WHERE r.status = 'queued' AND r.booking_id IS NULL AND e.position IS NOT NULL
)
SELECT k.id, part.jobs,
       (SELECT count(*) FROM told t
        WHERE t.line_type = k.line_type AND (t.line_priority, t.seq) > (k.line_priority, k.seq)) AS told_behind,
       EXISTS (
           SELECT FROM reservations r
           WHERE r.id = k.id AND r.status = 'queued'
             AND (k.slotted OR r.changed_at <= (SELECT max(planned_at) FROM told))
       ) AS placed
FROM unnest(CAST(:ids AS text[]), CAST(:types AS text[]), CAST(:priorities AS integer[]), CAST(:seqs AS bigint[]),
            CAST(:from_priorities AS integer[]), CAST(:from_seqs AS bigint[]), CAST(:slotted AS boolean[]))
     AS k (id, line_type, line_priority, seq, from_priority, from_seq, slotted)
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM reservations r
    WHERE r.status = 'queued' AND r.booking_id IS NULL AND r.held IS NOT TRUE AND r.line_type = k.line_type
      AND (r.line_priority, r.seq) > (k.from_priority, k.from_seq)
      AND (r.line_priority, r.seq) <= (k.line_priority, k.seq)
) part;

-- name: waiting_totals
-- How many wait for each requested type. The row of an array is no job that waits, but its elements are.
SELECT nullif(line_type, '') AS gpu_type, sum(jobs) AS jobs, sum(gpus) AS gpus FROM (
    SELECT line_type, count(*) AS jobs, sum(gpus * nodes) AS gpus
    FROM reservations WHERE status = 'queued' AND booking_id IS NULL GROUP BY line_type
    UNION ALL
    SELECT line_type, -count(*), -sum(gpus * nodes)
    FROM reservations WHERE array_size IS NOT NULL AND array_id IS NULL AND finished_at IS NULL GROUP BY line_type
) AS parts
GROUP BY line_type HAVING sum(jobs) > 0 ORDER BY line_type;

-- name: user_id_of_name
-- A user's key.
SELECT id FROM users WHERE name = :name;

-- name: predicted_starts
-- What was last predicted of these jobs.
SELECT reservation_id AS id, estimated_start_p50 AS p50, estimated_start_p90 AS p90 FROM wait_estimates
WHERE reservation_id = ANY(CAST(:ids AS text[])) AND estimated_start_p50 IS NOT NULL AND estimated_start_p90 IS NOT NULL;
