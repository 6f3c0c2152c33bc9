-- What users have that is not over. Maintenance windows are nobody's own.

-- name: waiting_of_user
-- What waits: jobs for GPUs (those, too, that end to wait again), requests for bookings.
SELECT r.id, r.kind, r.status, r.name, b.starts_at, b.ends_at
FROM reservations r LEFT JOIN bookings b ON b.id = r.id
WHERE r.user_id = :user_id AND r.finished_at IS NULL AND r.kind <> 'maintenance'
  AND (r.status IN ('queued', 'waiting', 'offered') OR r.outcome = 'queued')
ORDER BY r.id LIMIT :limit;

-- name: open_of_user
-- What is not over, and not ending already but to wait again.
SELECT r.id, r.kind, r.status, r.name, coalesce(b.starts_at, r.started_at) AS starts_at,
       coalesce(b.ends_at, r.ends_at) AS ends_at
FROM reservations r LEFT JOIN bookings b ON b.id = r.id
WHERE r.user_id = :user_id AND r.finished_at IS NULL AND r.kind <> 'maintenance'
  AND (r.status <> 'ending' OR r.outcome = 'queued')
ORDER BY r.id LIMIT :limit;

-- name: left_of_user
-- What is not over, the oldest first, and how many they are. Materialized: before PostgreSQL 16 the planner thinks that a limit
-- ends the counting early, too, and walks through all that the user ever had.
WITH unended AS MATERIALIZED (
    SELECT id, seq, kind, status, name, started_at, ends_at FROM reservations
    WHERE user_id = :user_id AND finished_at IS NULL AND kind <> 'maintenance'
)
SELECT r.id, r.kind, r.status, r.name, coalesce(b.starts_at, r.started_at) AS starts_at,
       coalesce(b.ends_at, r.ends_at) AS ends_at, count(*) OVER () AS in_all
FROM unended r LEFT JOIN bookings b ON b.id = r.id
ORDER BY r.seq LIMIT :limit;
