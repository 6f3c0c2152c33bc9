-- Due changes of bookings. Writers call block_plans first: plans lock rows of jobs before rows of bookings.

-- name: block_plans
-- Every write of a plan shares this row, so none happens until the transaction ends.
SELECT epoch FROM planner_lease FOR NO KEY UPDATE;

-- name: due_bookings
-- Bookings that may have a due change (domain/bookings/due_changes.due decides). Those that begin after `look_ahead` are not
-- read, however many they are.
SELECT r.id
FROM (
    SELECT * FROM bookings WHERE status IN ('confirmed', 'active') AND starts_at <= CAST(:look_ahead AS timestamptz)
    UNION ALL
    SELECT * FROM bookings WHERE status IN ('waiting', 'offered')
) b JOIN reservations r ON r.id = b.id
WHERE r.kind <> 'job' AND r.status IN ('waiting', 'offered', 'confirmed', 'active') AND CASE r.status
    WHEN 'waiting' THEN least(b.waits_until, b.starts_at) <= CAST(:now AS timestamptz)
    WHEN 'offered' THEN least(b.offer_until, b.starts_at) <= CAST(:now AS timestamptz)
    WHEN 'confirmed' THEN b.starts_at <= CAST(:look_ahead AS timestamptz) AND (
        b.starts_at <= CAST(:now AS timestamptz) OR EXISTS (
            SELECT FROM unnest(CAST(:starting_soon AS float8[])) AS t (s)
            WHERE b.starts_at - make_interval(secs => t.s) <= CAST(:now AS timestamptz)
              AND b.starts_at - make_interval(secs => t.s) > coalesce(b.start_warned_at, r.created_at)))
    ELSE b.ends_at <= CAST(:now AS timestamptz) OR EXISTS (
        SELECT FROM unnest(CAST(:ending_soon AS float8[])) AS t (s)
        WHERE b.ends_at - make_interval(secs => t.s) <= CAST(:now AS timestamptz)
          AND b.ends_at - make_interval(secs => t.s) > coalesce(b.end_warned_at, r.started_at, b.starts_at))
      OR (b.used_at IS NULL AND (
          b.release_at <= CAST(:now AS timestamptz)
          OR (b.no_show_warned_at IS NULL AND b.release_at < b.ends_at
              AND r.started_at + (b.release_at - r.started_at) / 2 <= CAST(:now AS timestamptz))
          OR EXISTS (SELECT FROM reservations j WHERE j.booking_id = r.id AND (j.started_at IS NOT NULL OR j.retried > 0))
          OR EXISTS (SELECT FROM admissions m WHERE m.booking_id = r.id)))
      OR (r.reason_code <> 'workload_refused' AND EXISTS (
          SELECT FROM reservations j WHERE j.id = b.started_job AND j.status = 'failed' AND j.started_at IS NULL))
    END
ORDER BY r.id LIMIT :limit;

-- name: booking_facts
-- Per booking: the first job or foreign pod in it, whether a job starts or runs, reservations from outside whose pods
-- hold its GPUs, and the job of its workload if that failed before it ran.
SELECT r.id, used.by AS used_by, used.at AS used_since, failed.id AS failed_job, failed.reason AS failed_why,
       EXISTS (SELECT FROM reservations j WHERE j.booking_id = r.id AND j.status IN ('starting', 'running')) AS busy,
       EXISTS (SELECT FROM allocations a WHERE a.booking_id = r.id AND a.released_at IS NULL AND a.held) AS held,
       ARRAY(SELECT DISTINCT h.reservation_id
             FROM allocations c JOIN allocations h ON h.gpu_id = c.gpu_id AND h.held
             WHERE c.reservation_id = r.id AND c.released_at IS NULL AND h.booking_id IS DISTINCT FROM r.id
             ORDER BY 1) AS late
FROM reservations r
LEFT JOIN LATERAL (
    SELECT j.id AS by, coalesce(j.started_at, j.changed_at) AS at FROM reservations j
    WHERE j.booking_id = r.id AND (j.started_at IS NOT NULL OR j.retried > 0)
    UNION ALL
    SELECT m.namespace || '/' || m.name, m.admitted_at FROM admissions m WHERE m.booking_id = r.id
    ORDER BY at, by LIMIT 1
) used ON true
LEFT JOIN bookings b ON b.id = r.id
LEFT JOIN reservations failed ON failed.id = b.started_job AND failed.status = 'failed' AND failed.started_at IS NULL
WHERE r.id = ANY(CAST(:ids AS text[]));

-- name: update_booking_reservations
-- Write rows after transitions; the version must still be the one that was read.
UPDATE reservations r
SET status = i.status, reason_code = i.reason_code, reason = i.reason, gpu_type = i.gpu_type, started_at = i.started_at,
    finished_at = i.finished_at, duration = i.ends_at - i.starts_at, version = r.version + 1,
    changed_at = CASE WHEN r.status = i.status THEN r.changed_at ELSE CAST(:now AS timestamptz) END
FROM unnest(
    CAST(:ids AS text[]), CAST(:versions AS integer[]), CAST(:statuses AS text[]), CAST(:reason_codes AS text[]),
    CAST(:reasons AS text[]), CAST(:gpu_types AS text[]), CAST(:started_ats AS timestamptz[]),
    CAST(:finished_ats AS timestamptz[]), CAST(:starts_ats AS timestamptz[]), CAST(:ends_ats AS timestamptz[])
) AS i (id, version, status, reason_code, reason, gpu_type, started_at, finished_at, starts_at, ends_at)
WHERE r.id = i.id AND r.version = i.version;

-- name: update_bookings
-- The columns that only bookings have.
UPDATE bookings b
SET starts_at = i.starts_at, ends_at = i.ends_at, offer_until = i.offer_until, used_at = i.used_at, release_at = i.release_at,
    start_warned_at = i.start_warned_at, end_warned_at = i.end_warned_at, no_show_warned_at = i.no_show_warned_at
FROM unnest(
    CAST(:ids AS text[]), CAST(:starts_ats AS timestamptz[]), CAST(:ends_ats AS timestamptz[]), CAST(:offer_untils AS timestamptz[]),
    CAST(:used_ats AS timestamptz[]), CAST(:release_ats AS timestamptz[]), CAST(:start_warned AS timestamptz[]),
    CAST(:end_warned AS timestamptz[]), CAST(:no_show_warned AS timestamptz[])
) AS i (id, starts_at, ends_at, offer_until, used_at, release_at, start_warned_at, end_warned_at, no_show_warned_at)
WHERE b.id = i.id;

-- name: drop_slots_beyond
-- Drop slots of waiting jobs within these bookings that reach beyond their rest; the jobs are planned again.
WITH dropped AS (
    DELETE FROM allocations a
    USING unnest(CAST(:ids AS text[]), CAST(:ats AS timestamptz[])) AS i (id, at)
    WHERE a.booking_id = i.id AND a.planned AND upper(a.during) > i.at
    RETURNING a.reservation_id
)
SELECT pgmq.send_batch('gpu_jobs', array_agg(jsonb_build_object('v', 1, 'kind', 'changed', 'id', reservation_id)))
FROM (SELECT DISTINCT reservation_id FROM dropped) AS each HAVING count(*) > 0;

-- name: give_back_unbegun
-- Delete rows that begin after the time from which they are freed.
DELETE FROM allocations a
USING unnest(CAST(:ids AS text[]), CAST(:ats AS timestamptz[])) AS i (id, at)
WHERE a.reservation_id = i.id AND a.released_at IS NULL AND lower(a.during) >= i.at;

-- name: give_back_rest
-- Free the rest of open rows after a time; `closing` ends them.
UPDATE allocations a
SET during = tstzrange(lower(a.during), least(upper(a.during), i.at)),
    released_at = CASE WHEN i.closing THEN (SELECT ledger_now()) END
FROM unnest(CAST(:ids AS text[]), CAST(:ats AS timestamptz[]), CAST(:closing AS boolean[])) AS i (id, at, closing)
WHERE a.reservation_id = i.id AND a.released_at IS NULL;

-- name: hold_booked_cards
-- Assign GPUs for the rest of a booking's slot.
INSERT INTO allocations (reservation_id, attempt, gpu_id, rank, during, held, created_at)
SELECT r.id, r.attempt, i.gpu_id, i.rank,
       tstzrange(greatest(b.starts_at, i.begins), b.ends_at), false, (SELECT ledger_now())
FROM unnest(CAST(:ids AS text[]), CAST(:gpu_ids AS bigint[]), CAST(:ranks AS integer[]),
            CAST(:begins AS timestamptz[])) AS i (id, gpu_id, rank, begins)
JOIN reservations r ON r.id = i.id
JOIN bookings b ON b.id = i.id
ORDER BY i.gpu_id;

-- name: link_started_job
-- Store the job of a booking's workload.
UPDATE bookings SET started_job = :job_id WHERE id = :id;

-- name: left_over_jobs
-- Jobs that wait, start or run within ended bookings.
SELECT j.id AS job_id, r.id AS booking_id, r.status AS booking_status, b.ends_at AS booking_end
FROM reservations j
JOIN reservations r ON r.id = j.booking_id
JOIN bookings b ON b.id = r.id
WHERE j.booking_id IS NOT NULL AND j.status IN ('queued', 'starting', 'running')
  AND (r.finished_at IS NOT NULL OR b.ends_at <= CAST(:now AS timestamptz))
ORDER BY j.id LIMIT :limit;

-- name: waitlist_mark
-- Changes whenever a request arrives, leaves or changes; one that leaves and one that arrives together differ in
-- `last`.
SELECT count(*) AS waiting, coalesce(max(seq), 0) AS last, coalesce(sum(version), 0) AS versions
FROM reservations WHERE kind <> 'job' AND status = 'waiting';

-- name: waitlist
-- Waiting requests in the order of arrival. If they are too many, every user's first requests come before later ones,
-- so that a user with many requests hides nobody else's.
SELECT r.id, r.user_id, u.name AS user_name, r.project, r.gpus, r.nodes, r.gpu_type, n.name AS node, b.starts_at, b.ends_at
FROM (
    SELECT *, row_number() OVER (PARTITION BY user_id ORDER BY seq) AS turn
    FROM reservations WHERE kind <> 'job' AND status = 'waiting'
    ORDER BY turn, seq LIMIT :limit
) r
JOIN bookings b ON b.id = r.id
JOIN users u ON u.id = r.user_id
LEFT JOIN nodes n ON n.id = b.node_id
ORDER BY r.seq;

-- name: open_booking_counts
-- The number of open bookings by status.
SELECT status, count(*) AS bookings FROM reservations
WHERE kind <> 'job' AND kind = 'booking' AND status IN ('waiting', 'offered', 'confirmed', 'active')
GROUP BY status;
