-- Removal of old history. Every statement reads at most `limit` rows, by an index that begins with the oldest. Rows
-- that are still needed are left out; triggers and foreign keys protect them, too.

-- name: still_needed
-- How long the ledger's history is read: by cooldowns between bookings, and by fair shares, which are counted up to a
-- time and again when their half-life changes.
SELECT (SELECT max(cooldown) FROM policies) AS cooldown, s.half_life_s,
       CASE WHEN s.half_life_s IS NOT NULL THEN s.as_of END AS counted_until
FROM fair_share_state s;

-- name: removable_reservations
-- The removable ones of the next reservations that ended before a time, bookings after their jobs and arrays after their
-- elements: ended, freed,
-- summed, and without foreign pods that still use them. Also returns where the next scan continues. OFFSET 0 keeps the
-- subqueries lookups by key: for an unknown number of heads, the planner would read whole tables.
WITH heads AS MATERIALIZED (
    SELECT r.id, r.kind, r.finished_at FROM reservations r
    WHERE r.finished_at < CAST(:before AS timestamptz) AND r.booking_id IS NULL
      AND (r.finished_at, r.id) > (CAST(:after_at AS timestamptz), CAST(:after_id AS text))
    ORDER BY r.finished_at, r.id LIMIT :limit
), settled AS MATERIALIZED (
    SELECT h.id, h.kind FROM heads h
    WHERE NOT EXISTS (SELECT FROM usage_pending p WHERE p.reservation_id = h.id OFFSET 0)
      AND NOT EXISTS (SELECT FROM admissions m WHERE m.booking_id = h.id AND m.ended_at IS NULL OFFSET 0)
      AND NOT EXISTS (SELECT FROM reservations j WHERE j.booking_id = h.id
                      AND (j.finished_at IS NULL OR j.finished_at >= CAST(:before AS timestamptz)) OFFSET 0)
      AND NOT EXISTS (SELECT FROM reservations e WHERE e.array_id = h.id OFFSET 0)
      AND NOT EXISTS (SELECT FROM allocations a WHERE a.reservation_id = h.id
                      AND (a.released_at IS NULL OR EXISTS (SELECT FROM given_back b WHERE b.allocation_id = a.id))
                      OFFSET 0)
), members AS MATERIALIZED (
    SELECT j.id FROM settled s
    CROSS JOIN LATERAL (SELECT r.id FROM reservations r WHERE r.booking_id = s.id OFFSET 0) j
    WHERE s.kind = 'booking' LIMIT :limit
), candidates AS (
    SELECT id FROM members
    UNION ALL
    SELECT s.id FROM settled s WHERE NOT EXISTS (SELECT FROM reservations j WHERE j.booking_id = s.id OFFSET 0)
), chosen AS (
    SELECT c.id FROM candidates c
    WHERE NOT EXISTS (
        SELECT FROM allocations a WHERE a.reservation_id = c.id
        AND (a.released_at IS NULL OR EXISTS (SELECT FROM given_back b WHERE b.allocation_id = a.id)) OFFSET 0)
)
SELECT ARRAY(SELECT id FROM chosen) AS ids, (SELECT count(*) FROM heads) AS looked_at,
       (SELECT finished_at FROM heads ORDER BY finished_at DESC, id DESC LIMIT 1) AS last_at,
       (SELECT id FROM heads ORDER BY finished_at DESC, id DESC LIMIT 1) AS last_id;

-- name: lock_ended_reservations
-- Lock these reservations, except those that are locked or open again, or that are news for jobs that wait for them.
SELECT id FROM reservations r WHERE id = ANY(CAST(:ids AS text[])) AND finished_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM job_dependencies d WHERE d.needs_id = r.id AND d.changed)
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: begin_retention
-- Allow the removal of closed ledger rows until the end of this transaction.
SELECT set_config('gpu_dev.retention', 'on', true);

-- name: remove_allocations_of
-- Remove their closed ledger rows.
DELETE FROM allocations WHERE reservation_id = ANY(CAST(:ids AS text[])) AND released_at IS NOT NULL;

-- name: remove_promises_of
-- Remove their promised starts.
DELETE FROM start_promises WHERE reservation_id = ANY(CAST(:ids AS text[]));

-- name: unlink_started_jobs
-- Unlink these jobs from their ended bookings, which are removed next.
UPDATE bookings SET started_job = NULL WHERE started_job = ANY(CAST(:ids AS text[]));

-- name: remove_pod_logs_of
-- Remove their log tails.
DELETE FROM pod_logs WHERE reservation_id = ANY(CAST(:ids AS text[]));

-- name: remove_admissions_of
-- Remove the admissions of foreign pods that used them.
DELETE FROM admissions WHERE booking_id = ANY(CAST(:ids AS text[]));

-- name: remove_windows_of
-- Remove their rows as maintenance windows.
DELETE FROM maintenance_windows WHERE id = ANY(CAST(:ids AS text[]));

-- name: remove_bookings_of
-- Remove their rows as bookings; returns their series.
DELETE FROM bookings WHERE id = ANY(CAST(:ids AS text[])) RETURNING series_id;

-- name: remove_empty_series
-- Remove series without bookings.
DELETE FROM booking_series s WHERE s.id = ANY(CAST(:ids AS text[])) AND NOT EXISTS (SELECT FROM bookings b WHERE b.series_id = s.id);

-- name: remove_reservations
-- Remove the reservations with their workloads.
DELETE FROM reservations WHERE id = ANY(CAST(:ids AS text[]));

-- name: oldest_ended_reservation
-- The end of the oldest reservation that is left.
SELECT min(finished_at) FROM reservations WHERE finished_at IS NOT NULL AND booking_id IS NULL;

-- name: removable_allocations
-- The removable ones of the next ledger rows: closed before a time, of a reservation that ended before it, and in the
-- sums. Rows are numbered in the order of creation, but an extension renews them: when all rows of a part are newer
-- than that time, so are the following ones.
WITH next AS MATERIALIZED (
    SELECT a.id, a.reservation_id, coalesce(a.booking_id, a.reservation_id) AS head, a.released_at, a.created_at
    FROM allocations a WHERE a.id > :after_id ORDER BY a.id LIMIT :limit
), chosen AS (
    SELECT n.id FROM next n
    JOIN reservations r ON r.id = n.reservation_id AND r.finished_at < CAST(:before AS timestamptz)
    JOIN reservations h ON h.id = n.head AND h.finished_at < CAST(:before AS timestamptz)
    WHERE n.released_at < CAST(:before AS timestamptz)
      AND NOT EXISTS (SELECT FROM given_back b WHERE b.allocation_id = n.id)
      AND NOT EXISTS (SELECT FROM allocations a WHERE a.reservation_id = n.head
                      AND (a.released_at IS NULL OR EXISTS (SELECT FROM given_back b WHERE b.allocation_id = a.id)))
      AND NOT EXISTS (SELECT FROM reservations j WHERE j.booking_id = n.head
                      AND (j.finished_at IS NULL OR j.finished_at >= CAST(:before AS timestamptz)))
      AND NOT EXISTS (SELECT FROM usage_pending p WHERE p.reservation_id = n.head)
      AND NOT EXISTS (SELECT FROM admissions m WHERE m.booking_id = n.head AND m.ended_at IS NULL)
)
SELECT ARRAY(SELECT id FROM chosen) AS ids,
       (SELECT CASE WHEN bool_or(created_at < CAST(:before AS timestamptz)) THEN count(*) ELSE 0 END FROM next) AS looked_at,
       (SELECT max(id) FROM next) AS last_id;

-- name: claim_usage
-- The reservations of these rows whose usage is summed and stays so. A correction (see reopen_usage) adds the same row
-- and waits for the end of this transaction, or this statement waits for the correction and leaves its rows out.
INSERT INTO usage_pending (reservation_id)
SELECT DISTINCT coalesce(booking_id, reservation_id) FROM allocations WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY 1
ON CONFLICT DO NOTHING RETURNING reservation_id AS id;

-- name: keep_usage
-- Keep the usage of these reservations in the sums.
DELETE FROM usage_pending WHERE reservation_id = ANY(CAST(:heads AS text[]));

-- name: remove_allocations
-- Remove these ledger rows of `heads`, except locked ones, and the promised starts of their reservations.
WITH gone AS (
    DELETE FROM allocations WHERE id = ANY(ARRAY(
        SELECT id FROM allocations WHERE id = ANY(CAST(:ids AS bigint[])) AND released_at IS NOT NULL
          AND coalesce(booking_id, reservation_id) = ANY(CAST(:heads AS text[]))
        ORDER BY id FOR UPDATE SKIP LOCKED
    )) RETURNING reservation_id
), promises AS (
    DELETE FROM start_promises WHERE reservation_id = ANY(ARRAY(SELECT reservation_id FROM gone))
)
SELECT count(*) FROM gone;

-- name: oldest_allocation
-- The creation time of the oldest ledger row.
SELECT created_at FROM allocations ORDER BY id LIMIT 1;

-- name: make_event_partitions
-- Create the next monthly partitions of the audit log.
SELECT make_event_partitions(CAST(:months AS integer));

-- name: event_partition_is_due
-- Whether a partition of the audit log ended before a time, or the default one has only older rows.
SELECT EXISTS (SELECT FROM event_partitions WHERE ends_at <= CAST(:before AS timestamptz))
    OR (EXISTS (SELECT FROM events_default) AND NOT EXISTS (SELECT FROM events_default WHERE at >= CAST(:before AS timestamptz)));

-- name: oldest_open_reservation
-- The creation time of the oldest open reservation, whose events are still needed. Two conditions, as in
-- open_reservations.
SELECT min(created_at) FROM reservations
WHERE (kind = 'job' AND finished_at IS NULL) OR (kind <> 'job' AND status IN ('waiting', 'offered', 'confirmed', 'active'));

-- name: drop_event_partition
-- Drop the oldest partition that ended before a time; returns its number of rows.
SELECT drop_event_partition(CAST(:before AS timestamptz));

-- name: oldest_event
-- The time of the oldest event.
SELECT at FROM events ORDER BY at, id LIMIT 1;

-- name: remove_pod_logs
-- Remove the oldest log tails that were stored before a time.
DELETE FROM pod_logs WHERE pod = ANY(ARRAY(
    SELECT pod FROM pod_logs WHERE kept_at < CAST(:before AS timestamptz) ORDER BY kept_at LIMIT :limit FOR UPDATE SKIP LOCKED
));

-- name: oldest_pod_log
-- The time of the oldest log tail.
SELECT min(kept_at) FROM pod_logs;

-- name: remove_keys
-- Remove the oldest answers for Idempotency-Keys.
DELETE FROM idempotency_keys WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM idempotency_keys WHERE created_at < CAST(:before AS timestamptz)
    ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
));

-- name: oldest_key
-- The time of the oldest answer.
SELECT min(created_at) FROM idempotency_keys;

-- name: note_removed
-- Count removed objects of a kind, and store the age of the rest.
INSERT INTO retention_state AS s (kind, removed, oldest_at, kept_bytes, looked_at)
VALUES (:kind, :removed, CAST(:oldest_at AS timestamptz), CAST(:kept_bytes AS bigint), CAST(:now AS timestamptz))
ON CONFLICT (kind) DO UPDATE
SET removed = s.removed + excluded.removed, oldest_at = excluded.oldest_at, kept_bytes = excluded.kept_bytes,
    looked_at = excluded.looked_at;

-- name: retention_standing
-- The totals of removed objects, and the age of the rest at the last run.
SELECT kind, removed, oldest_at, kept_bytes, looked_at FROM retention_state ORDER BY kind;

-- name: make_gpu_use_partitions
-- Create the days of samples of GPUs and of their roll-ups by minute: yesterday, today and tomorrow.
SELECT make_gpu_use_partitions();

-- name: drop_gpu_use_partition
-- Drop the oldest day of samples that ended a day ago, or of roll-ups by minute that ended 30 days ago; else compress the
-- oldest one of roll-ups that ended a day ago, in TimescaleDB.
SELECT drop_gpu_use_partition();
