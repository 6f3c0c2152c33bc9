-- name: try_pod_locks
-- Take those of these locks that are free. They are the connection's: they last until they are given back or it ends.
SELECT id FROM (SELECT id, pg_try_advisory_lock(hashtextextended(id, 0)) AS taken
                FROM unnest(CAST(:ids AS text[])) AS i (id)) AS locks
WHERE taken;

-- name: bound_lock_wait
-- How long this transaction waits for a lock.
SELECT set_config('lock_timeout', CAST(:milliseconds AS text), true);

-- name: wait_for_pod_lock
-- Wait for one.
SELECT pg_advisory_lock(hashtextextended(CAST(:id AS text), 0));

-- name: give_back_pod_locks
-- Let go of each.
SELECT pg_advisory_unlock(hashtextextended(id, 0)) FROM unnest(CAST(:ids AS text[])) AS i (id);
