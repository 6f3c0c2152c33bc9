-- name: database_time
-- What time it is by the clock that all components share.
SELECT ledger_time(CAST(:counted AS timestamptz)) AS now;

-- name: somebody_waits
-- Anybody on the waitlist.
SELECT id FROM reservations WHERE kind <> 'job' AND status = 'waiting' LIMIT 1;

-- name: lease_is_held
-- Whether somebody is the planner.
SELECT EXISTS (SELECT FROM planner_lease WHERE expires_at > (SELECT ledger_time(CAST(:counted AS timestamptz)))) AS held;
