-- The ledger's time (see migration 0021), as the process reads and mends it that counts on from it.

-- name: ledger_time
-- What time it is for the ledger, what it goes by (the last step that was recorded), and when the leader's lease runs out.
SELECT ledger_now() AS at, CAST(c AS text) AS record,
       (SELECT CASE WHEN isfinite(expires_at) THEN expires_at ELSE 'epoch' END FROM planner_lease) AS lease_until
FROM ledger_clock c;

-- name: ledger_time_is_confirmed
-- Whether the ledger's time is that of a leader who lives, for it has moved the end of its lease to a few seconds from now,
-- or of nobody: one that steps is made up for in a moment.
SELECT holder IS NULL OR expires_at BETWEEN t.at AND t.at + make_interval(secs => :longest_s) AS confirmed
FROM planner_lease, (SELECT ledger_now() AS at) AS t;

-- name: hold_ledger_time
-- Let the ledger's time go on as a process has counted it, although the database's clock stepped by so many seconds. Where
-- the two would be too far apart then, the ledger's time steps, too. Messages that a step back would hide for as long are
-- shown when they would have been. Nothing is done if a step was recorded since `record`: it may be the same one.
-- Without an epoch another process has counted, and it is done only if nobody leads by the time that it has counted.
WITH fence AS (
    SELECT epoch FROM planner_lease
    WHERE CASE WHEN CAST(:epoch AS bigint) IS NULL THEN expires_at <= CAST(:counted AS timestamptz) ELSE epoch = :epoch END
    FOR SHARE
), time AS MATERIALIZED (
    SELECT t.wall, t.at, abs(extract(epoch FROM t.at - t.wall) - CAST(:by_s AS float8)) <= :most_s AS held
    FROM (SELECT clock_timestamp() AS wall, ledger_now() AS at) AS t
), noted AS (
    UPDATE ledger_clock c
    SET ahead_s = CAST(extract(epoch FROM t.at - t.wall) AS float8) - CASE WHEN t.held THEN CAST(:by_s AS float8) ELSE 0 END,
        since = t.wall, stepped_by_s = CAST(:by_s AS float8),
        stepped_at = t.at - CASE WHEN t.held THEN make_interval(secs => CAST(:by_s AS float8)) ELSE '0' END
    FROM time t WHERE EXISTS (SELECT FROM fence) AND CAST(c AS text) = :record
    RETURNING c.stepped_at, t.held, t.wall, CAST(c AS text) AS record
), recorded AS (
    INSERT INTO events (subject, at, actor, kind, data)
    SELECT 'clock', stepped_at, 'system', 'clock_stepped', jsonb_build_object('by_s', CAST(:by_s AS float8), 'held', held)
    FROM noted
), jobs AS (
    UPDATE pgmq.q_gpu_jobs q SET vt = q.vt + make_interval(secs => CAST(:by_s AS float8))
    FROM noted n WHERE q.vt > n.wall AND CAST(:by_s AS float8) < 0
), operations AS (
    UPDATE pgmq.q_pod_operations q SET vt = q.vt + make_interval(secs => CAST(:by_s AS float8))
    FROM noted n WHERE q.vt > n.wall AND CAST(:by_s AS float8) < 0
), notifications AS (
    UPDATE pgmq.q_notifications q SET vt = q.vt + make_interval(secs => CAST(:by_s AS float8))
    FROM noted n WHERE q.vt > n.wall AND CAST(:by_s AS float8) < 0
)
SELECT held, record FROM noted;
