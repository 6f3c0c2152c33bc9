-- What is removed because it is old. Every statement looks at no more than `limit` rows of history, found by an index that
-- begins with the oldest; what must not go is left out here, and refused by triggers and foreign keys besides.

-- name: still_needed
-- For how long the ledger's history is read: by cooldowns between bookings, and by fair shares, which are counted up to a
-- time and anew when their half-life changes.
SELECT (SELECT max(cooldown) FROM policies) AS cooldown, s.half_life_s,
       CASE WHEN s.half_life_s IS NOT NULL THEN s.as_of END AS counted_until
FROM fair_share_state s;

-- name: removable_reservations
-- Of the next reservations that ended before a time those that can go, each booking after its jobs: over, given back,
-- summed, and without pods of others that still use it. Answers each that was looked at, with where the next look goes on.
-- OFFSET 0 keeps each question a look by key: for a number of heads that the plan does not know, it would read whole tables.
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
-- These, unless somebody has one or it is not over any more.
SELECT id FROM reservations WHERE id = ANY(CAST(:ids AS text[])) AND finished_at IS NOT NULL ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: begin_retention
-- Until the end of this transaction closed rows of the ledger may be removed.
SELECT set_config('gpu_dev.retention', 'on', true);

-- name: remove_allocations_of
-- The closed rows of the ledger of these.
DELETE FROM allocations WHERE reservation_id = ANY(CAST(:ids AS text[])) AND released_at IS NOT NULL;

-- name: remove_promises_of
-- What these were promised.
DELETE FROM start_promises WHERE reservation_id = ANY(CAST(:ids AS text[]));

-- name: unlink_started_jobs
-- Their bookings are over and go next.
UPDATE bookings SET started_job = NULL WHERE started_job = ANY(CAST(:ids AS text[]));

-- name: remove_pod_logs_of
-- The ends of logs that were kept of these.
DELETE FROM pod_logs WHERE reservation_id = ANY(CAST(:ids AS text[]));

-- name: remove_admissions_of
-- The pods of others that used these.
DELETE FROM admissions WHERE booking_id = ANY(CAST(:ids AS text[]));

-- name: remove_windows_of
-- What these have as maintenance windows.
DELETE FROM maintenance_windows WHERE id = ANY(CAST(:ids AS text[]));

-- name: remove_bookings_of
-- What these have as bookings; answers the series that they were in.
DELETE FROM bookings WHERE id = ANY(CAST(:ids AS text[])) RETURNING series_id;

-- name: remove_empty_series
-- Those of these series that have no booking any more.
DELETE FROM booking_series s WHERE s.id = ANY(CAST(:ids AS text[])) AND NOT EXISTS (SELECT FROM bookings b WHERE b.series_id = s.id);

-- name: remove_reservations
-- These themselves, with their workloads.
DELETE FROM reservations WHERE id = ANY(CAST(:ids AS text[]));

-- name: oldest_ended_reservation
-- When the oldest that is left ended.
SELECT min(finished_at) FROM reservations WHERE finished_at IS NOT NULL AND booking_id IS NULL;

-- name: removable_allocations
-- Of the next rows of the ledger those that can go: closed before a time, of a reservation that ended before it, and in
-- the sums. Rows are numbered as they are made, but an extension makes one young again: when all of a part were made after
-- that time, so were those that follow.
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
-- Of those to whose usage these rows belong, the ones that are in the sums and stay there: whoever corrects one (see
-- reopen_usage) adds the same row, and waits until this transaction is over, or this waits for them and leaves theirs out.
INSERT INTO usage_pending (reservation_id)
SELECT DISTINCT coalesce(booking_id, reservation_id) FROM allocations WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY 1
ON CONFLICT DO NOTHING RETURNING reservation_id AS id;

-- name: keep_usage
-- The usage of these stays in the sums as it is.
DELETE FROM usage_pending WHERE reservation_id = ANY(CAST(:heads AS text[]));

-- name: remove_allocations
-- These rows of the ledger of `heads`, unless somebody has one, and what their reservations were promised.
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
-- When the oldest row of the ledger was made.
SELECT created_at FROM allocations ORDER BY id LIMIT 1;

-- name: make_event_partitions
-- The months of the audit log that are near.
SELECT make_event_partitions(CAST(:months AS integer));

-- name: event_partition_is_due
-- Whether a partition of the audit log ended before a time, or the default one has nothing but older rows.
SELECT EXISTS (SELECT FROM event_partitions WHERE ends_at <= CAST(:before AS timestamptz))
    OR (EXISTS (SELECT FROM events_default) AND NOT EXISTS (SELECT FROM events_default WHERE at >= CAST(:before AS timestamptz)));

-- name: oldest_open_reservation
-- When the oldest reservation that is not over was made: what is recorded of it is needed. Two conditions for one, as in
-- open_reservations.
SELECT min(created_at) FROM reservations
WHERE (kind = 'job' AND finished_at IS NULL) OR (kind <> 'job' AND status IN ('waiting', 'offered', 'confirmed', 'active'));

-- name: drop_event_partition
-- The oldest partition that ended before a time; answers its rows.
SELECT drop_event_partition(CAST(:before AS timestamptz));

-- name: oldest_event
-- The time of the oldest event.
SELECT at FROM events ORDER BY at, id LIMIT 1;

-- name: remove_pod_logs
-- The oldest ends of logs that were kept before a time.
DELETE FROM pod_logs WHERE pod = ANY(ARRAY(
    SELECT pod FROM pod_logs WHERE kept_at < CAST(:before AS timestamptz) ORDER BY kept_at LIMIT :limit FOR UPDATE SKIP LOCKED
));

-- name: oldest_pod_log
-- When the oldest end of a log was kept.
SELECT min(kept_at) FROM pod_logs;

-- name: remove_keys
-- The oldest answers to repeated requests.
DELETE FROM idempotency_keys WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM idempotency_keys WHERE created_at < CAST(:before AS timestamptz)
    ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED
));

-- name: oldest_key
-- When the oldest of these was given.
SELECT min(created_at) FROM idempotency_keys;

-- name: note_removed
-- Count what was removed of a kind, and how old the rest is.
INSERT INTO retention_state AS s (kind, removed, oldest_at, kept_bytes, looked_at)
VALUES (:kind, :removed, CAST(:oldest_at AS timestamptz), CAST(:kept_bytes AS bigint), CAST(:now AS timestamptz))
ON CONFLICT (kind) DO UPDATE
SET removed = s.removed + excluded.removed, oldest_at = excluded.oldest_at, kept_bytes = excluded.kept_bytes,
    looked_at = excluded.looked_at;

-- name: retention_standing
-- What was removed so far, and how old the rest was at the last look.
SELECT kind, removed, oldest_at, kept_bytes, looked_at FROM retention_state ORDER BY kind;
