-- Open jobs and bookings of users. Maintenance windows belong to no user.

-- name: waiting_of_user
-- Waiting jobs (including those that end to be requeued) and waiting bookings.
SELECT r.id, r.kind, r.status, r.name, b.starts_at, b.ends_at
FROM reservations r LEFT JOIN bookings b ON b.id = r.id
WHERE r.user_id = :user_id AND r.finished_at IS NULL AND r.kind <> 'maintenance'
  AND (r.status IN ('queued', 'waiting', 'offered') OR r.outcome = 'queued')
ORDER BY r.id LIMIT :limit;

-- name: open_of_user
-- Open jobs and bookings, except jobs that are ending without being requeued.
SELECT r.id, r.kind, r.status, r.name, coalesce(b.starts_at, r.started_at) AS starts_at,
       coalesce(b.ends_at, r.ends_at) AS ends_at
FROM reservations r LEFT JOIN bookings b ON b.id = r.id
WHERE r.user_id = :user_id AND r.finished_at IS NULL AND r.kind <> 'maintenance'
  AND (r.status <> 'ending' OR r.outcome = 'queued')
ORDER BY r.id LIMIT :limit;

-- name: left_of_user
-- Open jobs and bookings, oldest first, and their total number. Materialized: before PostgreSQL 16 the planner thinks that LIMIT
-- ends the counting early, too, and reads the user's whole history.
WITH unended AS MATERIALIZED (
    SELECT id, seq, kind, status, name, started_at, ends_at FROM reservations
    WHERE user_id = :user_id AND finished_at IS NULL AND kind <> 'maintenance'
)
SELECT r.id, r.kind, r.status, r.name, coalesce(b.starts_at, r.started_at) AS starts_at,
       coalesce(b.ends_at, r.ends_at) AS ends_at, count(*) OVER () AS in_all
FROM unended r LEFT JOIN bookings b ON b.id = r.id
ORDER BY r.seq LIMIT :limit;
