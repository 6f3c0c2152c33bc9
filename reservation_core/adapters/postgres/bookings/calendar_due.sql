-- name: database_time
-- The time by the clock that all components share.
SELECT ledger_time(CAST(:counted AS timestamptz)) AS now;

-- name: somebody_waits
-- Whether the waitlist has requests.
SELECT id FROM reservations WHERE kind <> 'job' AND status = 'waiting' LIMIT 1;

-- name: lease_is_held
-- Whether a planner holds the lease.
SELECT EXISTS (SELECT FROM planner_lease WHERE expires_at > (SELECT ledger_time(CAST(:counted AS timestamptz)))) AS held;
